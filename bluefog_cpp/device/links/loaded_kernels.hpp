#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"

namespace bluefog::gpu {

/// The kernels of one device, each loaded when it is first asked for. The device has been entered.
class LoadedKernels {
 public:
  explicit LoadedKernels(std::shared_ptr<CudaApi> cuda) : cuda_(std::move(cuda)) {}

  /// The kernel `name`, a literal, of `image`. @throws CudaError.
  [[nodiscard]] FunctionHandle find(std::span<const std::byte> image, const char* name) {
    FunctionHandle& function = functions_[name];
    if (function == nullptr) {
      function = cuda_->load(image, name);
    }
    return function;
  }

 private:
  std::shared_ptr<CudaApi> cuda_;
  std::map<const char*, FunctionHandle> functions_;
};

}  // namespace bluefog::gpu
