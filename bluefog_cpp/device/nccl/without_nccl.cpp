#include "bluefog_cpp/device/nccl/nccl_api.hpp"
#include "bluefog_cpp/error.hpp"

// Stands in for the source that sees NCCL's headers, in a build without them.
namespace bluefog::gpu {

std::shared_ptr<NcclApi> load_nccl(const std::string& /*library*/) {
  throw UnsupportedError("this build has no NCCL: expected one with BLUEFOG_WITH_CUDA=ON");
}

}  // namespace bluefog::gpu
