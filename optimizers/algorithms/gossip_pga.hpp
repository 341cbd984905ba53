#pragma once

#include <cstdint>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// Gossip with periodic global averaging (Gossip-PGA): adapt-then-combine, of which every H-th
/// round averages over all ranks,
///
///     x ← W (x − γ d),   in rounds H, 2H, …: x ← J (x − γ d).
///
/// H = 1 is parallel SGD, W = I local SGD with period H. W may change from round to round.
/// Cost per rank and round: one neighbor_allreduce for each bucket, in every H-th round one
/// allreduce instead, which notes its calls on the heap; no memory of its own. Source: arXiv
/// 2105.09080, algorithm 1.
class GossipPga final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  /// @param period_rounds H, at least 1.
  GossipPga(Context& context, std::vector<Bucket>& buckets, std::int64_t period_rounds);

  void step(const Round& round, const StepBucket& step_bucket) override;

 private:
  std::int64_t period_rounds_;
  NeighborAverages neighbor_averages_;
  GlobalAverages global_averages_;
};

}  // namespace bluefog::optimizers
