#pragma once

#include <atomic>
#include <cstdint>

namespace bluefog {

/// Tells whether this process still is the one that made the object. In a fork of it the threads
/// are missing that the object counts on, and what it shares with other ranks is the parent's.
/// Asking costs one load.
class ForkGuard {
 public:
  ForkGuard();

  [[nodiscard]] bool is_forked() const noexcept {
    return generation_ != forks_.load(std::memory_order_relaxed);
  }

 private:
  /// The number of forks between the process that made the first object and this one.
  static inline std::atomic<std::uint64_t> forks_{0};

  std::uint64_t generation_;
};

}  // namespace bluefog
