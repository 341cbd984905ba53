#pragma once

#include <string>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"
#include "topology/ceca.hpp"

namespace bluefog::optimizers {

/// DSGD-CECA: adapt-then-combine whose averages are exact for any number of ranks, with one message
/// sent and one heard per rank and round. A rank holds its parameters x, which count its own value,
/// and s, which counts those of others alone; both take the local step,
///
///     u = −γ d(x);   x ← x + u;   s ← s + u;
///     m = the sender's x or s, as the round of the period says;
///     x ← a x + (1 − a) m;   s ← b s + (1 − b) m
///
/// with a = `CecaStep::own` and b = `CecaStep::others`. Without local steps all ranks hold the mean
/// after a period of ⌈log₂ n⌉ rounds, whatever s held before. Single rounds keep a consensus and,
/// unless n is a power of two, not the mean; the weights with which each rank's x counts the steps
/// sum to 1 in every round.
///
/// The schedule is `topology::Ceca::exchange` of two ports or of one; s starts as x, also after
/// `restart` and after parameters were set, in the middle of a period.
///
/// Cost per rank and round: one message for each bucket; two copies of the model, s and m, of which
/// a checkpoint keeps s. Source: Ding et al., arXiv 2306.00256.
class CecaAveraging final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  CecaAveraging(Context& context, std::vector<Bucket>& buckets, const topology::Ceca& ceca);

  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;
  void discard() override;
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  void step_both(std::size_t b, const StepBucket& step_bucket);
  void combine(const topology::CecaStep& now);

  Context& context_;
  std::vector<topology::CecaStep> period_;
  /// s of each bucket.
  std::vector<at::Tensor> without_own_;
  /// m; x before the local step while that is made.
  std::vector<at::Tensor> messages_;
  NeighborAverages with_own_calls_;
  NeighborAverages without_own_calls_;
  std::vector<Work> works_;
};

}  // namespace bluefog::optimizers
