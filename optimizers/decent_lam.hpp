#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// DecentLaM: momentum over what a step of adapt-then-combine changes, neighbours' part included,
///
///     v ← β v + x − W (x − γ d);   x ← x − v,   first v = 0,
///
/// with γ d the step of a wrapped optimizer that has no momentum of its own. Its limit is that of
/// adapt-then-combine at the same step size, where momentum in the wrapped optimizer multiplies the
/// bias by 1 / (1 − β). β = 0 is adapt-then-combine.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; two copies of the model, one of
/// which (v) a checkpoint keeps.
/// Source: arXiv 2104.11981, algorithm 2.
class DecentLam final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  /// @param momentum β, from 0 to below 1.
  DecentLam(Context& context, std::vector<Bucket>& buckets, double momentum);

  void step(const Round& round, const StepBucket& step_bucket) override;
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  double momentum_;
  NeighborAverages averages_;
  /// v, and x at the start of the step.
  std::vector<at::Tensor> moments_;
  std::vector<at::Tensor> starts_;
  std::vector<BufferView> moment_views_;
  std::vector<BufferView> start_views_;
};

}  // namespace bluefog::optimizers
