#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace bluefog {

/// Wakes the threads of one rank that sleep until a peer moves something.
///
/// It lives in memory that is shared between processes. Waking costs one load
/// while nobody sleeps. The order of operations that makes this safe: a peer
/// publishes with a sequentially consistent store and then reads `sleepers`;
/// a sleeper raises `sleepers` and then looks for published data once more.
class alignas(64) Doorbell {
 public:
  /// Announces a sleeper. Look for work once more between this and `sleep`.
  [[nodiscard]] std::uint32_t prepare() noexcept;
  /// Sleeps until a ring after `prepare`, or `timeout`. Ends what `prepare` began.
  void sleep(std::uint32_t ticket, std::chrono::microseconds timeout) noexcept;
  /// Ends what `prepare` began without sleeping.
  void cancel() noexcept;
  /// Wakes all sleepers, if any. Thread-safe.
  void ring() noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
      wake();
    }
  }

 private:
  void wake() noexcept;

  std::atomic<std::uint32_t> sequence_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace bluefog
