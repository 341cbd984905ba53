#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "bluefog_cpp/transport/life_lock.hpp"

namespace bluefog::shm {

/// A thread that holds this process's life lock: threads that make contexts may end before them.
/// Thread-safe. The thread begins with the first lock. Not to be destroyed in a fork.
class LifeKeeper {
 public:
  LifeKeeper() = default;
  /// Also calls `beat`, every `pause` from the first lock on: what it does is a sign of life.
  LifeKeeper(std::function<void()> beat, std::chrono::nanoseconds pause)
      : beat_(std::move(beat)), pause_(pause) {}
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
  /// Beats until something is asked for.
  void await_wish(std::unique_lock<std::mutex>& guard);

  std::function<void()> beat_{};
  std::chrono::nanoseconds pause_{0};
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
