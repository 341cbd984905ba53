#pragma once

#include <cstddef>
#include <memory>

#include "bluefog_cpp/device/memory_pool.hpp"

namespace bluefog::gpu {

/// The streams and memory for data on its way between a device and the host: a stream each way, so
/// that both ways go at the same time, and page-locked memory that is used again. Thread-safe.
class HostStaging {
 public:
  /// The device has been entered. @throws CudaError.
  /// @param may_free as in `MemoryPool`.
  HostStaging(std::shared_ptr<CudaApi> cuda, std::shared_ptr<EventPool> events, int device,
              std::shared_ptr<const std::atomic<bool>> may_free = nullptr);
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;
  ~HostStaging();

  [[nodiscard]] CudaApi& cuda() noexcept { return *cuda_; }
  [[nodiscard]] DeviceScope enter() { return {*cuda_, device_}; }
  /// The device has been entered.
  [[nodiscard]] Event take_event() { return events_->take(); }
  [[nodiscard]] StreamHandle to_host() const noexcept { return to_host_; }
  [[nodiscard]] StreamHandle to_device() const noexcept { return to_device_; }

  /// At least `bytes` bytes. The device has been entered. @throws CudaError.
  [[nodiscard]] MemoryBlock take(std::size_t bytes) { return memory_->take(bytes); }

 private:
  std::shared_ptr<CudaApi> cuda_;
  std::shared_ptr<EventPool> events_;
  int device_;
  StreamHandle to_host_ = nullptr;
  StreamHandle to_device_ = nullptr;
  std::shared_ptr<MemoryPool> memory_;
};

}  // namespace bluefog::gpu
