#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/device/cuda/handles.hpp"
#include "bluefog_cpp/device/libraries.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {

/// Why this machine runs no test on a GPU; empty where it does.
[[nodiscard]] const std::string& why_no_gpu();

/// A GPU of this machine while a test uses it: memory and streams that end with it.
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

  /// Another one, beside `stream`.
  [[nodiscard]] gpu::StreamHandle make_stream();

  /// `shift` bytes behind what CUDA aligns to.
  [[nodiscard]] std::byte* allocate(std::size_t bytes, std::size_t shift = 0);
  /// Ordered by `stream`.
  [[nodiscard]] BufferView upload(Values values, std::size_t shift = 0);
  [[nodiscard]] Values download(const BufferView& view);
  /// On the stream of `to`; the host goes on.
  void copy(const BufferView& to, const BufferView& from);
  /// The host waits for the stream, a minute at most. @throws TimeoutError.
  void synchronize() { synchronize(stream_); }
  void synchronize(gpu::StreamHandle stream);

  /// Empty where `shut` has an effect: where the driver calls functions of the host.
  [[nodiscard]] static std::string why_not_shut();
  /// What is put on `stream` later waits until `open`. Meanwhile no rank takes or frees memory,
  /// loads a kernel or talks to another one for the first time: these may wait for the device.
  void shut(gpu::StreamHandle stream);
  void open();

 private:
  std::shared_ptr<gpu::CudaApi> cuda_;
  int device_;
  gpu::StreamHandle stream_ = nullptr;
  std::vector<gpu::StreamHandle> streams_;
  std::vector<void*> allocated_;
  std::shared_ptr<std::atomic<bool>> is_open_;
};

}  // namespace bluefog::testing
