#pragma once

#include "optimizers/algorithms/momentum/averaged_momentum.hpp"
#include "optimizers/checks/momentum_growth.hpp"

namespace bluefog::optimizers {

/// DecentLaM: momentum over what a step of adapt-then-combine changes, neighbours' part included,
///
///     v ← β v + x − W (x − γ d);   x ← x − v,   first v = 0,
///
/// with γ d the step of a wrapped optimizer that has no momentum of its own. Its limit is that of
/// adapt-then-combine at the same step size, where momentum in the wrapped optimizer multiplies the
/// bias by 1 / (1 − β). β = 0 is adapt-then-combine. Differences between
/// ranks may grow without bound where W is not one symmetric matrix (`growth_per_round`). At rates
/// γ_t that change, v keeps each step as it was made, where the paper's counts that of time s by
/// γ_t / γ_s.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; two copies of the model, one of
/// which (v) a checkpoint keeps.
/// Source: arXiv 2104.11981, algorithm 2.
class DecentLam final : public AveragedMomentum {
 public:
  using AveragedMomentum::AveragedMomentum;

  [[nodiscard]] static MomentumRecursion without_gradients(double momentum) {
    return {.momentum = momentum};
  }
  void step(const Round& round, const StepBucket& step_bucket) override;
};

}  // namespace bluefog::optimizers
