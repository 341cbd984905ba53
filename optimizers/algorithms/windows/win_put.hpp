#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/buckets/windows/bucket_windows.hpp"
#include "optimizers/buckets/windows/late_sources.hpp"
#include "optimizers/late_rank.hpp"

namespace bluefog::optimizers {

/// Adapt-then-combine without waiting, by writing: each rank puts what it has stepped to into its
/// neighbours' windows, and averages with what they have put last,
///
///     ψ_i = x_i − γ d;   b_r(i) ← d_i(r) ψ_i for r in i's destinations;
///     x_i ← w_ii ψ_i + Σ_j w_ij b_i(j),   first b_i(j) = x_i,
///
/// with weights from the round's plan. No rank waits for another one: values may be some steps old,
/// and ranks may make different numbers of steps. With a step size that goes to zero, and speeds
/// that do not differ too much, ranks agree; at a fixed one the distance between them is of order
/// γ, as in adapt-then-combine, and grows with the age of the values. The mean over ranks is not
/// conserved: a value may be read twice or never.
///
/// With rules for late neighbours (`grace_s`, `staleness_bound`, `leave_out_late`) a round puts all
/// of its buckets, waits by the rules, and averages then: no value is older than the bound, and a
/// neighbour that does not come within the grace time holds nobody up. Only there ranks wait. `drain`
/// tells the neighbours that this rank makes no round for now, and that nobody is to wait for it.
///
/// Cost per rank and round: one pass over the model and, between hosts, one message for each
/// destination; memory of one copy of the model for each source (`BucketWindows`).
/// Source: BlueFog's `DistributedWinPutOptimizer`, which puts before the local step.
class WinPut final : public Algorithm {
 public:
  /// Collective. @param context, buckets outlive this object.
  /// @param neighbors every round's neighbours are among its.
  WinPut(Context& context, std::vector<Bucket>& buckets, const Schedule& neighbors,
         const LateRules& rules);

  [[nodiscard]] std::size_t calls_due() const override { return 0; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void drain() override;
  void discard() override;
  [[nodiscard]] std::vector<LateRank> late_ranks() const override { return late_.ranks(); }

 private:
  BucketWindows windows_;
  LateRules rules_;
  LateSources late_;
};

}  // namespace bluefog::optimizers
