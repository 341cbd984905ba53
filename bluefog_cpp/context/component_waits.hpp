#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace bluefog {

/// This rank's experience with calls that wait for all ranks that a step ties together, and what it
/// concludes: whether its next calls wait so, or for the ranks alone that they hear.
///
/// Such a call costs a part of what the rank waits for others after all that it hears are there,
/// since those who are late once are not the next time, and saves a multiple of what it takes to form
/// the results (docs/decisions/0031). Sums over a window of calls are compared, and a rank that loses
/// rests from such calls for a while, each time longer. Other ranks of the component hear of it in the next call, and rest with it.
/// Used under the engine's mutex.
class ComponentWaits {
 public:
  using Duration = std::chrono::nanoseconds;

  /// Counts a call. @return whether it waits for the component.
  [[nodiscard]] bool begin() noexcept {
    if (resting_ == 0) {
      return true;
    }
    --resting_;
    return false;
  }
  /// The calls from now on that do not.
  [[nodiscard]] std::uint32_t resting() const noexcept { return resting_; }

  /// A call in place has ended. @param wait for ranks that it does not hear, after those that it
  /// does. @param forming until the results of all are there.
  void note_sum(Duration wait, Duration forming) noexcept {
    ++sums_;
    refusals_ = 0;
    waited_ += wait;
    formed_ += forming;
    if (++calls_ < kWindow) {
      return;
    }
    if (waited_ > kWorth * formed_) {
      rest(kWindow * kLeastRest << losses_);
      losses_ = std::min(losses_ + 1, kMostDoublings);
    } else {
      losses_ = std::max(losses_, 1U) - 1;
    }
    calls_ = 0;
    waited_ = formed_ = Duration::zero();
  }
  /// Another rank did not take part. @param resting its own number of calls to rest.
  void note_refusal(std::uint32_t resting) noexcept {
    rest(resting > 0 ? resting : std::uint32_t{1} << refusals_);
    refusals_ = std::min(refusals_ + 1, kMostDoublings);
  }
  /// Calls that were in place.
  [[nodiscard]] std::uint64_t sums() const noexcept { return sums_; }

 private:
  static constexpr std::uint32_t kWindow = 16;
  /// Times the forming of results: waits up to here cost less than messages.
  static constexpr int kWorth = 6;
  /// Windows of rest after the first loss: trying again costs a ninth of the calls at most.
  static constexpr std::uint32_t kLeastRest = 8;
  static constexpr std::uint32_t kMostDoublings = 6;

  void rest(std::uint32_t calls) noexcept { resting_ = std::max(resting_, calls); }

  std::uint32_t resting_ = 0;
  std::uint32_t calls_ = 0;
  std::uint32_t losses_ = 0;
  std::uint32_t refusals_ = 0;
  std::uint64_t sums_ = 0;
  Duration waited_{};
  Duration formed_{};
};

}  // namespace bluefog
