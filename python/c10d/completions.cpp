#include "python/c10d/completions.hpp"

#include <exception>
#include <iterator>
#include <thread>
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

// @throws std::system_error, std::bad_alloc where the system has no thread left.
void Completions::start_unless_one_is_free() {
  if (thread_count_ == in_callbacks_) {
    const SignalsElsewhere signals;
    threads_.emplace_back([self = shared_from_this()] { self->run(); });
    ++thread_count_;
  }
}

// The thread whose callback it is comes back to the works where there can be no other.
void Completions::start_another() noexcept {
  try {
    start_unless_one_is_free();
  } catch (const std::exception&) {
  }
  has_work_.notify_one();
}

void Completions::run() {
  Lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return works_.empty() ? is_stopped_ : !is_looking_; });
    if (works_.empty()) {
      return;
    }
    // Most callbacks are over at once, and whoever is in one goes on to look.
    const Clock::time_point turn = callback_begin_ + kTurn;
    if (in_callbacks_ > 0 && Clock::now() < turn) {
      has_work_.wait_until(lock, turn);
    } else {
      look_at_first(lock);
    }
  }
}

void Completions::look_at_first(Lock& lock) {
  works_.splice(works_.end(), works_, works_.begin());  // the others are next
  const auto place = std::prev(works_.end());
  auto first = *place;
  is_looking_ = true;
  lock.unlock();
  bool is_done = false;
  try {
    is_done = first->attend(Clock::now() + kTurn);
  } catch (const std::exception&) {  // as out of memory: another look may find more
    std::this_thread::sleep_for(kTurn);
  }
  lock.lock();
  is_looking_ = false;
  if (!is_done) {
    return;
  }
  works_.erase(place);
  if (in_callbacks_++ == 0) {
    callback_begin_ = Clock::now();
  }
  if (!works_.empty()) {
    start_another();
  } else if (is_stopped_) {
    has_work_.notify_all();  // threads that waited for this look
  }
  lock.unlock();
  first->complete_future();
  first.reset();  // may be the last owner of tensors
  lock.lock();
  --in_callbacks_;
}

}  // namespace bluefog::c10d_backend
