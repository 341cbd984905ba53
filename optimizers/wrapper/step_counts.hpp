#pragma once

#include <cstdint>

namespace bluefog::optimizers {

/// The steps that a distributed optimizer has made and the rounds of communication among them:
/// every k-th step is one. Steps count whether or not they fail, so that all ranks go on with the
/// same round.
class StepCounts {
 public:
  /// @param steps_per_round k, at least 1 once a step is counted.
  explicit StepCounts(std::int64_t steps_per_round) noexcept : steps_per_round_(steps_per_round) {}

  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  [[nodiscard]] std::int64_t rounds() const noexcept { return rounds_; }
  [[nodiscard]] std::int64_t steps_per_round() const noexcept { return steps_per_round_; }

  /// Whether the next step is a round.
  [[nodiscard]] bool communicates_next() const noexcept {
    return (steps_ + 1) % steps_per_round_ == 0;
  }

  /// Whether some of the steps that one round is made for have been made, and not all.
  [[nodiscard]] bool is_between_rounds() const noexcept { return steps_ % steps_per_round_ != 0; }

  void count_step() noexcept {
    rounds_ += communicates_next() ? 1 : 0;
    ++steps_;
  }

  /// Counts steps as made without a round among them.
  void skip(std::int64_t count) noexcept { steps_ += count; }

  /// Goes on from counts that were saved.
  void resume(std::int64_t steps, std::int64_t rounds) noexcept {
    steps_ = steps;
    rounds_ = rounds;
  }

 private:
  std::int64_t steps_per_round_;
  std::int64_t steps_ = 0;
  std::int64_t rounds_ = 0;
};

}  // namespace bluefog::optimizers
