#pragma once

#include "optimizers/algorithms/momentum/averaged_momentum.hpp"

namespace bluefog::optimizers {

/// DmSGD: adapt-then-combine with momentum over each rank's own steps,
///
///     v ← β v + γ d;   x ← W (x − v),   first v = 0,
///
/// with γ d the step of a wrapped optimizer that has no momentum of its own. Around SGD it is
/// adapt-then-combine around SGD with momentum β, at a constant learning rate; its limit is that of
/// adapt-then-combine at γ / (1 − β), with the bias of that step size. β = 0 is adapt-then-combine.
/// At rates γ_t that change, v = Σ_s β^(t−s) γ_s d_s keeps the rate of each step, where SGD's
/// momentum moves by γ_t Σ_s β^(t−s) d_s.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; two copies of the model, one of
/// which (v) a checkpoint keeps.
/// Source: the baseline of arXiv 2104.11981.
class DmSgd final : public AveragedMomentum {
 public:
  using AveragedMomentum::AveragedMomentum;

  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;

 private:
  void step_one(std::size_t b, const StepBucket& step_bucket);
};

}  // namespace bluefog::optimizers
