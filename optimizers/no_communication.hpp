#pragma once

#include <string_view>
#include <vector>

#include "optimizers/algorithm.hpp"

namespace bluefog::optimizers {

/// Every rank for itself: x ← x − γ d. What communication costs is measured against it. Answers to
/// BlueFog's communication type `empty`.
class NoCommunication final : public Algorithm {
 public:
  /// @param buckets outlive this object.
  explicit NoCommunication(std::vector<Bucket>& buckets) : buckets_(buckets) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "none"; }
  [[nodiscard]] bool averages_with_neighbors() const noexcept override { return false; }
  void step(const Round& /*round*/, const StepBucket& step_bucket) override {
    step_alone(step_bucket);
  }
  void step_alone(const StepBucket& step_bucket) override {
    for (const Bucket& bucket : buckets_) {
      step_bucket(bucket);
    }
  }

 private:
  std::vector<Bucket>& buckets_;
};

}  // namespace bluefog::optimizers
