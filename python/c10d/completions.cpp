#include "python/c10d/completions.hpp"

#include <utility>

#include "bluefog_cpp/base/signals_elsewhere.hpp"

namespace bluefog::c10d_backend {
namespace {

/// How long one work is waited for before the others are looked at: messages come in no order. A
/// callback that takes longer may wait for one of them.
constexpr std::chrono::milliseconds kTurn{5};

}  // namespace

bool Completions::add(c10::intrusive_ptr<GroupWork> work) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) {
    return false;
  }
  works_.push_back(std::move(work));
  start_unless_one_is_free();
  has_work_.notify_one();
  return true;
}

void Completions::stop() {
  Lock lock(mutex_);
  is_stopped_ = true;
  has_work_.notify_all();
  while (!threads_.empty()) {
    std::thread thread = std::move(threads_.front());
    threads_.pop_front();
    lock.unlock();
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
    lock.lock();
  }
}

void Completions::start_unless_one_is_free() {
  if (thread_count_ == in_callbacks_) {
    const SignalsElsewhere signals;
    threads_.emplace_back([this] { run(); });
    ++thread_count_;
  }
}

bool Completions::may_look() const {
  return !is_looking_ && (in_callbacks_ == 0 || Clock::now() >= callback_begin_ + kTurn);
}

void Completions::run() {
  Lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return is_stopped_ || !works_.empty(); });
    if (works_.empty()) {
      return;
    }
    if (may_look()) {
      look_at_first(lock);
    } else {
      has_work_.wait_for(lock, kTurn);
    }
  }
}

void Completions::look_at_first(Lock& lock) {
  auto first = std::move(works_.front());
  works_.pop_front();
  is_looking_ = true;
  lock.unlock();
  const bool is_done = first->attend(Clock::now() + kTurn);
  lock.lock();
  is_looking_ = false;
  if (!is_done) {
    works_.push_back(std::move(first));
    return;
  }
  ++in_callbacks_;
  callback_begin_ = Clock::now();
  if (!works_.empty()) {
    start_unless_one_is_free();
  }
  lock.unlock();
  first->complete_future();
  first.reset();  // may be the last owner of tensors
  lock.lock();
  --in_callbacks_;
}

}  // namespace bluefog::c10d_backend
