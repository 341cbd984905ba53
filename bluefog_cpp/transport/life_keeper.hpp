#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "bluefog_cpp/transport/life_lock.hpp"

namespace bluefog::shm {

/// A thread that holds this process's life lock: threads that make contexts may end before them.
/// Thread-safe. The thread begins with the first lock. Not to be destroyed in a fork.
class LifeKeeper {
 public:
  LifeKeeper() = default;
  LifeKeeper(const LifeKeeper&) = delete;
  LifeKeeper& operator=(const LifeKeeper&) = delete;
  ~LifeKeeper();

  /// Returns when the lock is held. @throws TransportError.
  void hold(LifeLock& lock);
  /// Returns when the lock is free.
  void let_go(LifeLock& lock) noexcept;

 private:
  enum class Wish { None, Hold, LetGo, End };

  /// Has the thread do it.
  void ask(Wish wish, LifeLock* lock);
  void work();

  /// Held by the one that asks.
  std::mutex askers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Wish wish_ = Wish::None;
  LifeLock* lock_ = nullptr;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace bluefog::shm
