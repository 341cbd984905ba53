#pragma once

#include <chrono>
#include <cstdint>

namespace bluefog {

/// How waits pass their time, and how long they last.
struct WaitPolicy {
  /// Looks before the first yield; pays off while peers have cores of their own.
  int spins = 1000;
  /// Yields before sleeping.
  int yields = 50;
  /// A warning is logged after this time; zero: never.
  std::chrono::milliseconds stall_warning{60'000};
  /// The wait ends in an error after this time; zero: never.
  std::chrono::milliseconds timeout{600'000};
};

/// Decides how one wait passes its time: spin, yield, then sleep.
class Waiter {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Step : std::uint8_t { Spin, Yield, Sleep };

  /// Peers that died and interrupts are looked for this often.
  static constexpr std::chrono::milliseconds kCheckPeriod{50};

  explicit Waiter(const WaitPolicy& policy) : policy_(policy) {}

  /// For a thread beside a busy one: sleeps at once.
  static Waiter background(const WaitPolicy& policy) {
    Waiter waiter(policy);
    waiter.spins_ = policy.spins;
    waiter.yields_ = policy.yields;
    return waiter;
  }

  /// What to do now that nothing moved.
  Step next() noexcept {
    if (spins_ < policy_.spins) {
      ++spins_;
      return Step::Spin;
    }
    if (yields_ < policy_.yields) {
      ++yields_;
      return Step::Yield;
    }
    return Step::Sleep;
  }

  /// Something moved: start over with spinning, and with the clock.
  void moved() noexcept {
    spins_ = 0;
    yields_ = 0;
    backoff_ = kFirstBackoff;
    since_ = {};
    warned_ = false;
  }

  /// Time of the next sleep. Transports that must be polled shorten it to a growing backoff.
  std::chrono::microseconds sleep_time(bool polling) noexcept {
    if (!polling) {
      return kCheckPeriod;
    }
    const auto time = backoff_;
    backoff_ = backoff_ * 2 < kLastBackoff ? backoff_ * 2 : kLastBackoff;
    return time;
  }

  /// True about every `kCheckPeriod` of standing still.
  bool check_due(Clock::time_point now) noexcept {
    if (since_ == Clock::time_point{}) {
      since_ = now;
      last_check_ = now;
      return false;
    }
    if (now - last_check_ < kCheckPeriod) {
      return false;
    }
    last_check_ = now;
    return true;
  }

  /// How long nothing has moved, as of the last `check_due`.
  [[nodiscard]] std::chrono::milliseconds stalled() const noexcept {
    return std::chrono::duration_cast<std::chrono::milliseconds>(last_check_ - since_);
  }

  /// True once per stall, when it has become worth a warning.
  bool warning_due() noexcept {
    if (warned_ || policy_.stall_warning.count() == 0 || stalled() < policy_.stall_warning) {
      return false;
    }
    warned_ = true;
    return true;
  }

  [[nodiscard]] bool timed_out() const noexcept {
    return policy_.timeout.count() != 0 && stalled() >= policy_.timeout;
  }

 private:
  static constexpr std::chrono::microseconds kFirstBackoff{50};
  static constexpr std::chrono::microseconds kLastBackoff{1000};

  WaitPolicy policy_;
  int spins_ = 0;
  int yields_ = 0;
  std::chrono::microseconds backoff_ = kFirstBackoff;
  Clock::time_point since_{};
  Clock::time_point last_check_{};
  bool warned_ = false;
};

}  // namespace bluefog
