#pragma once

#include <pthread.h>

#include <atomic>

namespace bluefog::shm {

/// A lock in shared memory that a process holds as long as it lives, so that others see its end.
///
/// The kernel releases what a thread holds when it ends the thread: before it frees the process's
/// memory, which may take a tenth of a second, and whatever children the process leaves behind. A
/// socket or pipe of the process stays open as long as one of them lives. Never moves.
class LifeLock {
 public:
  /// Makes the lock, before other processes see the memory. @throws TransportError.
  void initialize();

  /// Holds the lock from now on. The calling thread has to live as long as the process, or until it
  /// calls `let_go`. @throws TransportError.
  void hold();
  void let_go() noexcept;

  /// Whether the thread that held it has ended or let it go; false before `hold`. Any process may
  /// ask; costs no call of the system.
  [[nodiscard]] bool is_over() noexcept;

 private:
  pthread_mutex_t mutex_;
  std::atomic<bool> was_held_;
};

}  // namespace bluefog::shm
