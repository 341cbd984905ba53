#pragma once

#include <chrono>

namespace bluefog {

/// The moment at which a wait gives up. A value; never expires by default.
class Deadline {
 public:
  /// The clock that deadlines go by: changes of the wall clock do not move them.
  using Clock = std::chrono::steady_clock;

  Deadline() = default;

  /// Expires `timeout` from now; a timeout of zero or less means never.
  static Deadline after(Clock::duration timeout) {
    Deadline deadline;
    if (timeout > Clock::duration::zero()) {
      deadline.when_ = Clock::now() + timeout;
      deadline.timeout_ = timeout;
    }
    return deadline;
  }

  /// A deadline that never expires.
  static Deadline never() { return {}; }

  /// The same timeout, from now.
  [[nodiscard]] Deadline again() const {
    return after(std::chrono::duration_cast<Clock::duration>(timeout_));
  }

  /// True from the moment on at which the wait gives up; never, where none is set.
  [[nodiscard]] bool expired() const { return is_set() && Clock::now() >= when_; }
  /// False for a deadline that never expires.
  [[nodiscard]] bool is_set() const noexcept { return when_ != Clock::time_point::max(); }
  /// The moment itself; `time_point::max()` where none is set.
  [[nodiscard]] Clock::time_point when() const noexcept { return when_; }
  /// The timeout from which the deadline was made, for messages; zero where none is set.
  [[nodiscard]] std::chrono::duration<double> timeout() const noexcept { return timeout_; }

 private:
  Clock::time_point when_ = Clock::time_point::max();
  Clock::duration timeout_{};
};

}  // namespace bluefog
