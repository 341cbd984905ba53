#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "bluefog_cpp/transport/work.hpp"
#include "optimizers/algorithm.hpp"

namespace bluefog::optimizers {

/// ATC diffusion: the local step, then the average of its result with the neighbours,
///
///     x ← W (x − γ d).
///
/// A bucket travels while the next ones are stepped; `step` returns when all have arrived.
/// Cost per rank and round: one neighbor_allreduce for each bucket, no memory of its own.
/// Source: Chen and Sayed, "Diffusion adaptation strategies", 2012; BlueFog's
/// `DistributedAdaptThenCombineOptimizer`.
class AdaptThenCombine final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  AdaptThenCombine(Context& context, std::vector<Bucket>& buckets);

  [[nodiscard]] std::string_view name() const noexcept override { return "adapt_then_combine"; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;

 private:
  Context& context_;
  std::vector<Bucket>& buckets_;
  std::vector<ops::NeighborAllreduceOptions> options_;
  std::vector<Work> works_;
};

}  // namespace bluefog::optimizers
