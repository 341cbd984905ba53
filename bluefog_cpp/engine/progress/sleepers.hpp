#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "bluefog_cpp/transport/doorbell.hpp"

namespace bluefog {

/// Threads of this rank that sleep until a peer, or another thread, has moved one of its calls.
///
/// Used under the engine's mutex.
class Sleepers {
 public:
  /// @param doorbell rung by peers too; null when no transport shares memory.
  explicit Sleepers(Doorbell* doorbell) noexcept
      : doorbell_(doorbell != nullptr ? doorbell : &own_doorbell_) {}
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;

  [[nodiscard]] Doorbell& doorbell() noexcept { return *doorbell_; }
  /// The shared doorbell goes: from now on only threads of this rank ring.
  void leave_shared_doorbell() noexcept { doorbell_ = &own_doorbell_; }

  /// Sleeps without `lock`, as `Doorbell::Sleeper::sleep`.
  bool sleep(std::unique_lock<std::mutex>& lock, const Doorbell::Sleeper& sleeper,
             std::uint32_t ticket, std::chrono::microseconds time) {
    ++count_;
    lock.unlock();
    const bool has_rung = sleeper.sleep(ticket, time);
    lock.lock();
    --count_;
    return has_rung;
  }

  /// A call has come to its end in good order.
  void wake() noexcept {
    if (count_ > 0) {
      doorbell_->ring();
    }
  }
  /// A call has failed, or all have.
  void wake_always() noexcept { doorbell_->ring(); }

 private:
  Doorbell own_doorbell_{};
  Doorbell* doorbell_;
  int count_ = 0;
};

}  // namespace bluefog
