#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/transport/cuda/handles.hpp"
#include "bluefog_cpp/transport/nccl/libraries.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {

/// Why this machine runs no test on a GPU; empty where it does.
[[nodiscard]] const std::string& why_no_gpu();

/// A GPU of this machine while a test uses it: memory that ends with it, and one stream.
class Gpu {
 public:
  /// @param number taken modulo the number of devices.
  explicit Gpu(int number);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] gpu::CudaApi& cuda() noexcept { return *cuda_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] gpu::StreamHandle stream() const noexcept { return stream_; }

  /// `shift` bytes behind what CUDA aligns to.
  [[nodiscard]] std::byte* allocate(std::size_t bytes, std::size_t shift = 0);
  /// Ordered by `stream`.
  [[nodiscard]] BufferView upload(Values values, std::size_t shift = 0);
  [[nodiscard]] Values download(const BufferView& view);
  /// The host waits for the stream.
  void synchronize();

 private:
  std::shared_ptr<gpu::CudaApi> cuda_;
  int device_;
  gpu::StreamHandle stream_ = nullptr;
  std::vector<void*> allocated_;
};

}  // namespace bluefog::testing
