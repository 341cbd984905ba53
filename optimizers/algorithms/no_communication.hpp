#pragma once

#include "optimizers/algorithm.hpp"

namespace bluefog::optimizers {

/// Every rank for itself: x ← x − γ d. The cost of communication is measured against it. Answers to
/// BlueFog's communication type `empty`.
class NoCommunication final : public Algorithm {
 public:
  using Algorithm::Algorithm;

  [[nodiscard]] bool averages_with_neighbors() const noexcept override { return false; }
  [[nodiscard]] std::size_t calls_due() const override { return 0; }
  void step(const Round& /*round*/, const StepBucket& step_bucket) override {
    step_alone(step_bucket);
  }
};

}  // namespace bluefog::optimizers
