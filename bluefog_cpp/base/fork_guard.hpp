#pragma once

#include <cstdint>

namespace bluefog {

/// Knows whether this process is still the one that made the object, or a fork of it: there the
/// threads are missing that the object counts on, and what it shares with other ranks is its
/// parent's.
class ForkGuard {
 public:
  ForkGuard() noexcept : generation_(current()) {}

  [[nodiscard]] bool is_forked() const noexcept { return generation_ != current(); }

 private:
  /// Counts the forks between the first call's process and this one.
  [[nodiscard]] static std::uint64_t current() noexcept;

  std::uint64_t generation_;
};

}  // namespace bluefog
