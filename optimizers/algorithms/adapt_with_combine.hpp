#pragma once

#include <vector>

#include "bluefog_cpp/work.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// AWC, also decentralized gradient descent (DGD, D-PSGD): the average with the neighbours and the
/// local step from the same parameters,
///
///     x ← W x − γ d(x).
///
/// After its step each bucket is published; the average of what the neighbours published is formed
/// in place at the start of the next step, before the local step with the gradient of the old x.
/// So a whole iteration of computing hides the transfer, and parameters change only inside `step`.
/// The first step takes x for W x: start from equal parameters. `drain` forms the outstanding
/// average; the next step then computes its gradient at that average.
///
/// Published buckets wait in order: of two optimizers of this kind on one context, the one that
/// published first must combine first. Models that are stepped independently of each other get a
/// context each (`Context::duplicate`).
///
/// Rounds that average over others than the neighbours (`Averaging`) do so at the start of their
/// own step, which waits for it.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; memory for the published copy
/// of the model in shared memory.
/// Source: D-PSGD, arXiv 1705.09056; BlueFog's `DistributedAdaptWithCombineOptimizer`.
class AdaptWithCombine final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  AdaptWithCombine(Context& context, std::vector<Bucket>& buckets);

  [[nodiscard]] bool allows_other_averages() const noexcept override { return true; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;
  void drain() override;

 private:
  void combine(std::size_t bucket);
  void step_after_average(const Round& round, const StepBucket& step_bucket);

  Context& context_;
  NeighborAverages averages_;
  std::vector<ops::NeighborAllreduceOptions> options_;
  std::vector<Work> works_;
};

}  // namespace bluefog::optimizers
