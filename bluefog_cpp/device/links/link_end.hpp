#pragma once

#include <chrono>
#include <future>
#include <memory>

#include "bluefog_cpp/device/capture_lane.hpp"
#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/log.hpp"

namespace bluefog {

/// The end of a channel's link, which holds up no caller: a link with graphs ends with the last of
/// them, which the calling thread may hold, and NCCL's with the other ranks' links.
class LinkEnd {
 public:
  LinkEnd(std::shared_ptr<gpu::CudaApi> cuda, int device, const Logger& log)
      : cuda_(std::move(cuda)), device_(device), log_(log) {}

  /// Calls `ending` of the link, on a thread of its own where it may block; the device has been
  /// entered. @param captures is freed afterwards; null: no call was captured.
  /// @throws TransportError where it does not block.
  void begin(const std::shared_ptr<DeviceLink>& link,
             const std::shared_ptr<gpu::CaptureLane>& captures, void (*ending)(DeviceLink& link));
  /// Whether a thread of its own ends the link, or has done so.
  [[nodiscard]] bool has_thread() const noexcept { return is_over_.valid(); }
  /// Waits for that thread. @return whether the end is over; true where there is no thread.
  [[nodiscard]] bool wait(std::chrono::nanoseconds longest);

 private:
  std::shared_ptr<gpu::CudaApi> cuda_;
  int device_;
  Logger log_;
  std::future<void> is_over_;
};

}  // namespace bluefog
