#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/cuda/handles.hpp"

namespace bluefog::gpu {

class HostStaging;

/// Page-locked memory that goes back to its pool. The pool hands it on once all events that were
/// noted have happened.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(HostBlock&& other) noexcept
      : pool_(std::move(other.pool_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        uses_(std::move(other.uses_)) {}
  HostBlock& operator=(HostBlock&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(uses_, other.uses_);
    return *this;
  }
  ~HostBlock();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// The device uses the memory until then.
  void note_use(std::shared_ptr<const Event> event) { uses_.push_back(std::move(event)); }
  /// What the device does with the memory is not known any more: it is never used again.
  void lose() noexcept { pool_.reset(); }

 private:
  friend class HostStaging;
  HostBlock(std::shared_ptr<HostStaging> pool, std::byte* data, std::size_t bytes)
      : pool_(std::move(pool)), data_(data), bytes_(bytes) {}

  std::shared_ptr<HostStaging> pool_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::shared_ptr<const Event>> uses_;
};

/// What data needs on its way between a device and the host: a stream each way, so that both go at
/// the same time, and page-locked memory that is used again. Thread-safe.
class HostStaging : public std::enable_shared_from_this<HostStaging> {
 public:
  /// The device has been entered. @throws CudaError.
  HostStaging(std::shared_ptr<CudaApi> cuda, std::shared_ptr<EventPool> events, int device);
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
  [[nodiscard]] HostBlock take(std::size_t bytes);

 private:
  friend class HostBlock;
  struct Idle {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::vector<std::shared_ptr<const Event>> uses{};
  };

  void give_back(Idle block);
  [[nodiscard]] bool is_free(const Idle& block);
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  void free_idle();

  std::shared_ptr<CudaApi> cuda_;
  std::shared_ptr<EventPool> events_;
  int device_;
  StreamHandle to_host_ = nullptr;
  StreamHandle to_device_ = nullptr;
  std::mutex mutex_;
  std::vector<Idle> idle_;
};

}  // namespace bluefog::gpu
