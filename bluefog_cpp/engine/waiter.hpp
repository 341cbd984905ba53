#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>

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
  /// What sets that time, for messages.
  std::string_view timeout_name = "BLUEFOG_TIMEOUT";
};

/// Decides how one wait passes its time: spin, yield, then sleep.
class Waiter {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Step : std::uint8_t { Spin, Yield, Sleep };

  /// Peers that died are looked for this often.
  static constexpr std::chrono::milliseconds kCheckPeriod{20};
  /// Interrupts are looked for this often: an interpreter's lock may have to be had for it.
  static constexpr std::chrono::milliseconds kInterruptPeriod{50};

  explicit Waiter(const WaitPolicy& policy)
      : policy_(policy), spin_limit_(policy.spins), yield_limit_(policy.yields) {}

  /// For a thread beside a busy one: sleeps at once.
  static Waiter background(const WaitPolicy& policy) {
    Waiter waiter(policy);
    waiter.spin_limit_ = 0;
    waiter.yield_limit_ = 0;
    return waiter;
  }

  /// The next thing to do, as nothing moved.
  Step next() noexcept {
    if (spins_ < spin_limit_) {
      ++spins_;
      return Step::Spin;
    }
    if (yields_ < yield_limit_) {
      ++yields_;
      return Step::Yield;
    }
    return Step::Sleep;
  }

  /// True now and then: spinning looks at the clock too, for a look may take long where MPI yields
  /// to other processes.
  bool clock_due() noexcept { return ++looks_ % kLooksPerClock == 0; }

  /// Something moved: start over with spinning, for half as long where it was in vain, and with
  /// shorter sleeps. So a slow link's next piece is waited for at the pace of those before it. The
  /// clock goes on.
  void moved() noexcept {
    if (spins_ >= spin_limit_) {
      spin_limit_ = std::max(spin_limit_ / 2, std::min(spin_limit_, policy_.spins / kMostHalving));
    }
    spins_ = 0;
    yields_ = 0;
    backoff_ = std::max(kFirstBackoff, backoff_ / 4);
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

  /// True about every `kCheckPeriod`.
  /// @param progress changes whenever the wait has come nearer to its end: the clock starts anew.
  bool check_due(Clock::time_point now, std::uint64_t progress) noexcept {
    const bool is_first = since_ == Clock::time_point{};
    if (is_first || progress != progress_) {
      since_ = now;
      progress_ = progress;
      warned_ = false;
    }
    if (is_first) {
      last_check_ = now;
    }
    if (now - last_check_ < kCheckPeriod) {
      return false;
    }
    last_check_ = now;
    return true;
  }

  /// True about every `kInterruptPeriod`; asked after `check_due`.
  bool interrupt_due() noexcept {
    if (last_check_ - last_interrupt_check_ < kInterruptPeriod) {
      return false;
    }
    last_interrupt_check_ = last_check_;
    return true;
  }

  /// How long there has been no progress, as of the last `check_due`.
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

  [[nodiscard]] const WaitPolicy& policy() const noexcept { return policy_; }

  [[nodiscard]] bool timed_out() const noexcept {
    return policy_.timeout.count() != 0 && stalled() >= policy_.timeout;
  }

 private:
  static constexpr std::chrono::microseconds kFirstBackoff{50};
  static constexpr std::chrono::microseconds kLastBackoff{1000};

  static constexpr std::uint32_t kLooksPerClock = 32;
  static constexpr int kMostHalving = 8;

  WaitPolicy policy_;
  int spin_limit_;
  int yield_limit_;
  std::uint32_t looks_ = 0;
  int spins_ = 0;
  int yields_ = 0;
  std::chrono::microseconds backoff_ = kFirstBackoff;
  Clock::time_point since_{};
  Clock::time_point last_check_{};
  Clock::time_point last_interrupt_check_{};
  std::uint64_t progress_ = 0;
  bool warned_ = false;
};

}  // namespace bluefog
