#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "bluefog_cpp/weighted_rank.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_parts.hpp"

namespace bluefog::ops {

/// The mutexes of a window's ranks, as this rank takes, holds and releases them. Thread-safe.
class WindowMutexes {
 public:
  WindowMutexes(const WindowIdentity& window, const WindowParts& parts)
      : window_(window), parts_(parts) {}

  /// Checks that this thread does not hold the mutex of any of `ranks`: a call that takes it would
  /// wait for itself. @throws StateError.
  void check_not_held(std::span<const WeightedRank> ranks, std::string_view call) const;

  /// Takes the mutex of `rank`. @return what `release` has to be told.
  /// @throws StateError where this thread holds it; TimeoutError, PeerFailure.
  [[nodiscard]] std::uint64_t take(int rank, WindowCall& call);
  void release(int rank, std::uint64_t ticket) noexcept;
  /// Releases all that this thread holds, before the window is freed: a lock that outlives it would
  /// release another window's.
  void release_own();
  /// A rank whose mutex another thread of this rank holds, which alone can release it; or nothing.
  [[nodiscard]] std::optional<int> held_elsewhere() const;

 private:
  /// A mutex of this window that this rank holds.
  struct Held {
    int rank = 0;
    std::uint64_t ticket = 0;
    std::thread::id thread{};
  };

  void check_not_held(int rank, std::string_view call) const;

  const WindowIdentity& window_;
  const WindowParts& parts_;
  mutable std::mutex mutex_;
  std::vector<Held> held_;
};

/// Holds the mutex of one rank of a window.
class MutexHolder {
 public:
  MutexHolder(WindowMutexes& mutexes, int rank, WindowCall& call)
      : mutexes_(mutexes), rank_(rank), ticket_(mutexes_.take(rank_, call)) {}
  MutexHolder(const MutexHolder&) = delete;
  MutexHolder& operator=(const MutexHolder&) = delete;
  ~MutexHolder() { mutexes_.release(rank_, ticket_); }

 private:
  WindowMutexes& mutexes_;
  int rank_;
  std::uint64_t ticket_;
};

}  // namespace bluefog::ops
