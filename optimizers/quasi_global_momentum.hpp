#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// QG-DSGDm: adapt-then-combine with momentum from the way that the averaged model moves,
///
///     x⁺ = W (x − γ d − β v);   v ← β v + (1 − β) (x − x⁺),   first v = 0,
///
/// with γ d the step of a wrapped optimizer that has no momentum of its own: v is γ m̂ of the paper,
/// with its μ = β. Where nothing moves v is zero, so that its limit is that of adapt-then-combine
/// at the same step size. β = 0 is adapt-then-combine.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; two copies of the model, one of
/// which (v) a checkpoint keeps.
/// Source: arXiv 2102.04761, algorithm 1.
class QuasiGlobalMomentum final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  /// @param momentum β, from 0 to below 1.
  QuasiGlobalMomentum(Context& context, std::vector<Bucket>& buckets, double momentum);

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
