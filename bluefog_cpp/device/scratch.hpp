#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"

namespace bluefog::gpu {

/// Memory of a device that work on one stream uses, one piece of work after the other. It grows by
/// doubling, and its earlier memory stays: work that was launched may still use it.
class Scratch {
 public:
  explicit Scratch(std::shared_ptr<CudaApi> cuda) : cuda_(std::move(cuda)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// At least `bytes` bytes. Later work may overwrite what was handed out before. The device has
  /// been entered.
  /// @throws CudaError.
  [[nodiscard]] std::byte* of(std::size_t bytes) {
    if (bytes > bytes_) {
      const std::size_t more = std::max(bytes, 2 * bytes_);
      allocated_.push_back(cuda_->allocate(more));
      bytes_ = more;
    }
    return allocated_.empty() ? nullptr : static_cast<std::byte*>(allocated_.back());
  }

  /// Gives all memory back, when nothing uses it any more. Memory that CUDA fails to free is lost,
  /// which is better than used again. @throws CudaError.
  void free() {
    bytes_ = 0;
    for (void* const memory : std::exchange(allocated_, {})) {
      cuda_->free(memory);
    }
  }

 private:
  std::shared_ptr<CudaApi> cuda_;
  std::size_t bytes_ = 0;
  std::vector<void*> allocated_;
};

}  // namespace bluefog::gpu
