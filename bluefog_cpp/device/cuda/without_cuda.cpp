#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/error.hpp"

// Stands in for the source that sees CUDA's headers, in a build without them.
namespace bluefog::gpu {

std::shared_ptr<CudaApi> load_cuda(const std::string& /*library*/) {
  throw UnsupportedError("this build has no CUDA: expected one with BLUEFOG_WITH_CUDA=ON");
}

}  // namespace bluefog::gpu
