#pragma once

#include <memory>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/nccl/nccl_api.hpp"

namespace bluefog::gpu {

/// The table through which all of CUDA and NCCL is called.
struct Libraries {
  std::shared_ptr<CudaApi> cuda{};
  /// Null: there is none.
  std::shared_ptr<NcclApi> nccl{};
};

}  // namespace bluefog::gpu
