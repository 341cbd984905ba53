#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/device/cuda/handles.hpp"
#include "bluefog_cpp/device/libraries.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {

/// The reason why this machine runs no test on a GPU; empty if it runs them.
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

  /// Another stream, beside `stream`.
  [[nodiscard]] gpu::StreamHandle make_stream();

  /// Memory that begins `shift` bytes behind CUDA's alignment.
  [[nodiscard]] std::byte* allocate(std::size_t bytes, std::size_t shift = 0);
  /// The view is ordered by `stream`.
  [[nodiscard]] BufferView upload(Values values, std::size_t shift = 0);
  [[nodiscard]] Values download(const BufferView& view);
  /// Copies on the stream of `to`; the host goes on.
  void copy(const BufferView& to, const BufferView& from);
  /// The host waits for the stream, a minute at most. @throws TimeoutError.
  void synchronize() { synchronize(stream_); }
  void synchronize(gpu::StreamHandle stream);

  /// Empty if `shut` has an effect, that is if the driver calls functions of the host.
  [[nodiscard]] static std::string why_not_shut();
  /// Work put on `stream` later waits until `open`. Meanwhile no rank takes or frees memory, loads
  /// a kernel or talks to another rank for the first time: these may wait for the device.
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
