#pragma once

#include "optimizers/algorithms/momentum/averaged_momentum.hpp"
#include "optimizers/checks/momentum_growth.hpp"

namespace bluefog::optimizers {

/// QG-DSGDm: adapt-then-combine with momentum from the way that the averaged model moves,
///
///     x⁺ = W (x − γ d − β v);   v ← β v + (1 − β) (x − x⁺),   first v = 0,
///
/// with γ d the step of a wrapped optimizer that has no momentum of its own: v is γ m̂ of the
/// paper, with its μ = β. v is zero where nothing moves, so that its limit is that of
/// adapt-then-combine at the same step size. β = 0 is adapt-then-combine. Differences between ranks
/// may grow without bound where W turns them around (`growth_per_round`). At rates γ_t that change,
/// v keeps each way as it was moved, where γ_t m̂ of the paper counts that of time s by γ_t / γ_s.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; two copies of the model, one of
/// which (v) a checkpoint keeps.
/// Source: arXiv 2102.04761, algorithm 1.
class QuasiGlobalMomentum final : public AveragedMomentum {
 public:
  using AveragedMomentum::AveragedMomentum;

  [[nodiscard]] static MomentumRecursion without_gradients(double momentum) {
    return {.momentum = momentum,
            .of_sent = momentum,
            .of_taken = 1.0 - momentum,
            .by_taken = 1.0,
            .by_momentum = 0.0};
  }
  void step(const Round& round, const StepBucket& step_bucket) override;
};

}  // namespace bluefog::optimizers
