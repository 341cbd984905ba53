#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::gpu {

/// Makes a device the thread's current one for its lifetime.
///
/// Calls inside the scope do not spoil a capture that is under way: what this library takes and
/// asks for is its own and lasts, so that no graph has to do it again.
class DeviceScope {
 public:
  DeviceScope(CudaApi& cuda, int device) : cuda_(cuda) {
    cuda_.enter(device);
    try {
      mode_before_ = cuda_.exchange_capture_mode(CaptureMode::Relaxed);
    } catch (...) {
      leave();
      throw;
    }
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope() {
    try {
      cuda_.exchange_capture_mode(mode_before_);
    } catch (const CudaError&) {  // NOLINT: of the process's end, when CUDA has gone already
    }
    leave();
  }

 private:
  void leave() noexcept {
    try {
      cuda_.leave();
    } catch (const CudaError&) {  // NOLINT: as above
    }
  }

  CudaApi& cuda_;
  CaptureMode mode_before_ = CaptureMode::Global;
};

class EventPool;

/// An event that goes back to its pool.
class Event {
 public:
  Event(std::shared_ptr<EventPool> pool, EventHandle handle)
      : pool_(std::move(pool)), handle_(handle) {}
  Event(Event&& other) noexcept = default;
  Event& operator=(Event&& other) = delete;
  ~Event();

  [[nodiscard]] EventHandle get() const noexcept { return handle_; }

 private:
  std::shared_ptr<EventPool> pool_;
  EventHandle handle_;
};

/// Events of one device, used again. Thread-safe.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  EventPool(std::shared_ptr<CudaApi> cuda, int device) : cuda_(std::move(cuda)), device_(device) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool() {
    try {
      const DeviceScope scope(*cuda_, device_);
      for (const EventHandle event : idle_) {
        cuda_->free_event(event);
      }
    } catch (const CudaError&) {  // NOLINT: as above
    }
  }

  /// The device has been entered.
  [[nodiscard]] Event take() {
    {
      const std::scoped_lock lock(mutex_);
      if (!idle_.empty()) {
        const EventHandle handle = idle_.back();
        idle_.pop_back();
        return {shared_from_this(), handle};
      }
    }
    return {shared_from_this(), cuda_->make_event()};
  }

  void give_back(EventHandle event) {
    const std::scoped_lock lock(mutex_);
    idle_.push_back(event);
  }

 private:
  std::shared_ptr<CudaApi> cuda_;
  int device_;
  std::mutex mutex_;
  std::vector<EventHandle> idle_;
};

inline Event::~Event() {
  if (pool_) {
    pool_->give_back(handle_);
  }
}

}  // namespace bluefog::gpu
