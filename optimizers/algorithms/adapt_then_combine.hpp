#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// ATC diffusion: the local step, then the average of its result with the neighbours,
///
///     x ← W (x − γ d).
///
/// A bucket travels while the next ones are stepped; `step` returns when all have arrived. W may
/// change from round to round, and so may those averaged over (`Averaging`).
/// Cost per rank and round: one neighbor_allreduce for each bucket, no memory of its own.
/// Source: Chen and Sayed, "Diffusion adaptation strategies", 2012; BlueFog's
/// `DistributedAdaptThenCombineOptimizer`.
class AdaptThenCombine final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  AdaptThenCombine(Context& context, std::vector<Bucket>& buckets);

  [[nodiscard]] bool allows_other_averages() const noexcept override { return true; }
  void step(const Round& round, const StepBucket& step_bucket) override;

 private:
  NeighborAverages averages_;
};

}  // namespace bluefog::optimizers
