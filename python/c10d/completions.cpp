#include "python/c10d/completions.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/signals_elsewhere.hpp"

namespace bluefog::c10d_backend {
namespace {

/// How long one work is waited for before the others are looked at: messages come in no order.
constexpr std::chrono::milliseconds kTurn{5};

}  // namespace

bool Completions::add(c10::intrusive_ptr<GroupWork> work) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) {
    return false;
  }
  works_.push_back(std::move(work));
  if (!thread_.joinable()) {
    const SignalsElsewhere signals;
    thread_ = std::thread([this] { run(); });
  }
  has_work_.notify_one();
  return true;
}

void Completions::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  has_work_.notify_one();
  if (!thread_.joinable()) {
    return;
  }
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Completions::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return is_stopped_ || !works_.empty(); });
    if (works_.empty()) {
      return;
    }
    auto first = works_.front();
    lock.unlock();
    if (!first->attend(std::chrono::steady_clock::now() + kTurn)) {
      lock.lock();
      // A later one may be done, and this one may wait for what its callback does.
      std::rotate(works_.begin(), works_.begin() + 1, works_.end());
      continue;
    }
    first->complete_future();
    lock.lock();
    std::erase(works_, first);
    lock.unlock();
    first.reset();  // may be the last owner of tensors
    lock.lock();
  }
}

}  // namespace bluefog::c10d_backend
