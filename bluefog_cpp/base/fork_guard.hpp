#pragma once

#include <atomic>
#include <cstdint>

namespace bluefog {

/// Knows whether this process is still the one that made the object, or a fork of it: there the
/// threads are missing that the object counts on, and what it shares with other ranks is its
/// parent's. Asking costs one load.
class ForkGuard {
 public:
  ForkGuard();

  [[nodiscard]] bool is_forked() const noexcept {
    return generation_ != forks_.load(std::memory_order_relaxed);
  }

 private:
  /// Forks between the process that made the first object and this one.
  static inline std::atomic<std::uint64_t> forks_{0};

  std::uint64_t generation_;
};

}  // namespace bluefog
