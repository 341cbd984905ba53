#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace bluefog {

/// Wakes the threads of one rank that sleep until a peer moves something.
///
/// It lives in memory that is shared between processes. Ringing costs one load while nobody sleeps,
/// and no fence: a peer publishes with a release store and then looks for sleepers. A peer's look
/// may come before a sleeper's announcement although its store reaches the sleeper's core only a
/// moment after the sleeper has looked for work. So the first sleep after an announcement must be
/// short, and a second look must follow it: a peer that stores later sees the announcement.
class alignas(64) Doorbell {
 public:
  /// Longer than a store can stay on its way to another core.
  static constexpr std::chrono::microseconds kFirstSleep{100};

  /// An announced sleeper, for as long as it lives.
  class Sleeper {
   public:
    explicit Sleeper(Doorbell& doorbell) noexcept;
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    /// The number of the present ring: take it, look for work, then sleep on it.
    [[nodiscard]] std::uint32_t ticket() const noexcept;
    /// Sleeps until a ring after `ticket` was taken, or `timeout`. @return whether it rang.
    bool sleep(std::uint32_t ticket, std::chrono::microseconds timeout) const noexcept;

   private:
    Doorbell& doorbell_;
  };

  /// Wakes all sleepers, if any. Thread-safe.
  void ring() noexcept {
    if (sleepers_.load(std::memory_order_relaxed) != 0) {
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
