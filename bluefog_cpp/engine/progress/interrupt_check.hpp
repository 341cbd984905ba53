#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <utility>

namespace bluefog {

/// The user's look for interrupts, which leaves a wait by an exception.
///
/// Used under the engine's mutex.
class InterruptCheck {
 public:
  InterruptCheck() = default;
  InterruptCheck(const InterruptCheck&) = delete;
  InterruptCheck& operator=(const InterruptCheck&) = delete;

  void set(std::function<void()> check) { check_ = std::move(check); }
  /// Empty where there is none.
  [[nodiscard]] const std::function<void()>& get() const noexcept { return check_; }

  /// Calls it, if there is one, without `lock`. @return its exception, or null.
  [[nodiscard]] std::exception_ptr run(std::unique_lock<std::mutex>& lock) const {
    if (!check_) {
      return nullptr;
    }
    const auto check = check_;
    std::exception_ptr interruption;
    lock.unlock();
    running_ = this;
    try {
      check();
    } catch (...) {
      interruption = std::current_exception();
    }
    running_ = nullptr;
    lock.lock();
    return interruption;
  }

  /// Whether this thread is inside of `run`.
  [[nodiscard]] bool is_running_here() const noexcept { return running_ == this; }

 private:
  std::function<void()> check_;
  static inline thread_local const InterruptCheck* running_ = nullptr;
};

}  // namespace bluefog
