#pragma once

#include <memory>

#include "bluefog_cpp/transport/cuda/cuda_api.hpp"
#include "bluefog_cpp/transport/nccl/nccl_api.hpp"

namespace bluefog::gpu {

/// The table through which all of CUDA and NCCL is called.
struct Libraries {
  std::shared_ptr<CudaApi> cuda{};
  std::shared_ptr<NcclApi> nccl{};

  /// This machine's. @throws as `load_cuda` and `load_nccl`.
  [[nodiscard]] static Libraries load() { return {.cuda = load_cuda(), .nccl = load_nccl()}; }
};

}  // namespace bluefog::gpu
