#include "bluefog_cpp/transport/life_keeper.hpp"

#include <utility>

namespace bluefog::shm {

LifeKeeper::~LifeKeeper() {
  if (thread_.joinable()) {
    ask(Wish::End, nullptr);
    thread_.join();
  }
}

void LifeKeeper::hold(LifeLock& lock) {
  const std::scoped_lock asking(askers_);
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { work(); });
  }
  ask(Wish::Hold, &lock);
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void LifeKeeper::let_go(LifeLock& lock) noexcept {
  const std::scoped_lock asking(askers_);
  ask(Wish::LetGo, &lock);
}

void LifeKeeper::ask(Wish wish, LifeLock* lock) {
  std::unique_lock guard(mutex_);
  wish_ = wish;
  lock_ = lock;
  changed_.notify_all();
  changed_.wait(guard, [this] { return wish_ == Wish::None; });
}

void LifeKeeper::await_wish(std::unique_lock<std::mutex>& guard) {
  const auto is_asked = [this] { return wish_ != Wish::None; };
  if (!beat_) {
    changed_.wait(guard, is_asked);
    return;
  }
  do {
    beat_();
  } while (!changed_.wait_for(guard, pause_, is_asked));
}

void LifeKeeper::work() {
  std::unique_lock guard(mutex_);
  bool is_over = false;
  while (!is_over) {
    await_wish(guard);
    const Wish wish = wish_;
    is_over = wish == Wish::End;
    // The life lock is held while this thread waits for the mutex: it is never taken inside of it.
    guard.unlock();
    std::exception_ptr error;
    try {
      if (wish == Wish::Hold) {
        lock_->hold();
      } else if (wish == Wish::LetGo) {
        lock_->let_go();
      }
    } catch (...) {
      error = std::current_exception();
    }
    guard.lock();
    error_ = error;
    wish_ = Wish::None;
    changed_.notify_all();
  }
}

}  // namespace bluefog::shm
