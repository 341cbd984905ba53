#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace bluefog::shm {

/// A lock in shared memory that survives the death of whoever holds it.
///
/// A robust POSIX mutex: where its holder has ended without releasing it, the next rank gets it
/// and is told so. Locked and unlocked by the same thread. Lives in memory that never moves.
class RobustLock {
 public:
  enum class Outcome : std::uint8_t {
    Taken,
    /// Taken from a holder that died with it: what the lock guards may be half done.
    Inherited,
    Busy,
  };

  /// Before other ranks see the memory. @throws TransportError.
  void initialize();

  /// Waits for at most `longest`. @throws TransportError for what POSIX calls an error.
  [[nodiscard]] Outcome take(int rank, std::chrono::milliseconds longest);
  [[nodiscard]] Outcome try_take(int rank);
  /// @return false, and it stays taken, where another thread has taken it.
  bool release() noexcept;

  /// The rank that holds it, or -1: for messages.
  [[nodiscard]] int holder() const noexcept { return holder_.load(std::memory_order_relaxed); }

 private:
  Outcome accept(int code, int rank);

  pthread_mutex_t mutex_;
  std::atomic<int> holder_;
};

}  // namespace bluefog::shm
