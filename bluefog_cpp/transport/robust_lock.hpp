#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace bluefog::shm {

/// A lock in shared memory that survives the death of whoever holds it.
///
/// A robust POSIX mutex: where its holder has ended without releasing it, the next rank gets it
/// and is notified. Locked and unlocked by the same thread. Lives in memory that never moves.
///
/// Others give way to a rank that has waited for a millisecond: a mutex goes to whoever is awake
/// when it is released, and a thread that takes it again at once would keep it from all others.
class RobustLock {
 public:
  enum class Outcome : std::uint8_t {
    Taken,
    /// Taken from a holder that died with it: what the lock guards may be half done.
    Inherited,
    Busy,
  };

  /// Makes the lock, before other ranks see the memory. @throws TransportError.
  void initialize();

  /// Waits for at most `longest`. @throws TransportError for what POSIX calls an error.
  [[nodiscard]] Outcome take(int rank, std::chrono::milliseconds longest);
  /// Takes the lock if it is free. Busy also where the caller has to give way to another.
  [[nodiscard]] Outcome try_take(int rank);
  /// Asks on behalf of `rank`, for a caller that asks again and again instead of waiting; others
  /// give way as to a waiter.
  [[nodiscard]] Outcome poll(int rank);
  /// @return false, and the lock stays taken, where another thread has taken it.
  bool release() noexcept;

  /// The rank that holds the lock, or -1; for messages.
  [[nodiscard]] int holder() const noexcept { return holder_.load(std::memory_order_relaxed); }

 private:
  /// A thread's number, or, below zero, a rank for which another thread asks.
  enum class Asker : std::int32_t { Nobody = 0 };
  /// A waiter that others are to give way to.
  struct Request {
    /// Microseconds of a steady clock, the lowest 32 bits.
    std::uint32_t at;
    Asker asker;
  };

  Outcome accept(int code, int rank);
  Outcome lock_now(int rank);
  static Asker this_thread() noexcept;
  bool is_another_first(Asker asker) const noexcept;
  void ask_for_way(Asker asker) noexcept;
  void withdraw_request(Asker asker) noexcept;

  pthread_mutex_t mutex_;
  std::atomic<int> holder_;
  std::atomic<Request> request_;
};

}  // namespace bluefog::shm
