#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "ops/neighbor_allreduce.hpp"
#include "optimizers/buffer_policy.hpp"
#include "optimizers/local_step.hpp"
#include "optimizers/rethrow_in_backward.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// What ranks exchange, and what the result does. Each has a class of its own, which says more.
enum class AlgorithmKind : std::uint8_t {
  /// g ← mean(g), then the local step (`GradientAllreduce`).
  GradientAllreduce,
  /// x ← W (x − γ d) (`AdaptThenCombine`, `AdaptInBackward`).
  AdaptThenCombine,
  /// x ← W x − γ d(x) (`AdaptWithCombine`).
  AdaptWithCombine,
  /// x ← x − γ d (`NoCommunication`).
  None,
  /// x⁺ = (I + W) x − ½ (I + W) x₋ − γ (d − d₋) (`Extra`).
  Extra,
  /// ψ = x − γ d; x ← ½ (I + W) (ψ + x − ψ₋) (`ExactDiffusion`).
  ExactDiffusion,
  /// ψ = x − γ d; x ← W (ψ + x − ψ₋) (`ExactDiffusion`).
  D2,
  /// y⁺ = W y + g⁺ − g; x⁺ = W (x − γ d(y)) (`GradientTracking`).
  GradientTracking,
  /// x ← P (x − γ d(x / w)); w ← P w; P column-stochastic (`PushSum`).
  PushSum,
  /// x ← W (x − γ d), every `global_period_rounds` rounds x ← J (x − γ d) (`GossipPga`).
  GossipPga,
  /// x ← x − γ d, in communicating steps x ← J (x − γ d) (`LocalSgd`).
  LocalSgd,
  /// v ← β v + x − W (x − γ d); x ← x − v (`DecentLam`).
  DecentLam,
  /// x⁺ = W (x − γ d − β v); v ← β v + (1 − β) (x − x⁺) (`QuasiGlobalMomentum`).
  QuasiGlobalMomentum,
  /// x_i ← w_ii ψ_i + Σ_j w_ij · what j has put last, ψ = x − γ d; no rank waits (`WinPut`).
  WinPut,
  /// The same with what is fetched from j (`PullGet`).
  PullGet,
  /// Push-sum in which no rank waits (`AsyncPushSum`).
  AsyncPushSum,
};

/// "adapt_then_combine", …; "unknown" for other numbers.
[[nodiscard]] std::string_view name_of(AlgorithmKind kind);

/// This rank's part of communication round 0, 1, …; called once for each, in order.
using PlanOfRound = std::function<NeighborPlan(std::int64_t round)>;

/// How a `DistributedOptimizer` works. The same on all ranks.
struct DistributedOptimizerOptions {
  AlgorithmKind algorithm = AlgorithmKind::AdaptThenCombine;

  /// W(t) of communication round t. Default: the static exponential graph, base 2; where W must be
  /// symmetric the symmetric exponential graph, for D² with a self share of 0.4 (`topology::lazy`).
  std::optional<Schedule> schedule{};

  /// In place of a schedule: plans that this rank makes as it goes. Each costs an allocation. With
  /// windows beside a schedule: its neighbours are those that plans may name.
  PlanOfRound plans{};
  /// Whether the ranks compare what `plans` gives before any data moves: one all-gather a round.
  /// With windows, where no rank waits for another, nothing is compared.
  ops::PlanCheck plan_check = ops::PlanCheck::Checked;

  /// Every k-th `step` communicates; at least 1. What the steps between do is the algorithm's
  /// matter: local steps, or, with gradient all-reduce, adding up gradients. Algorithms that
  /// correct their bias by what they exchanged in the step before refuse k > 1.
  std::int64_t num_steps_per_communication = 1;

  /// H of Gossip-PGA, at least 1.
  std::int64_t global_period_rounds = 6;

  /// β of DecentLaM and QG-DSGDm, from 0 to below 1. The wrapped optimizer has none of its own
  /// then.
  double momentum = 0.9;

  /// Parameters travel in pieces of up to this size. 0: `BLUEFOG_FUSION_THRESHOLD`, and at most 4 MiB
  /// where pieces leave in the backward pass (gradient all-reduce, `step_in_backward`); the first of
  /// those has up to 1 MiB.
  std::int64_t bucket_bytes = 0;

  Stepping stepping = Stepping::Auto;

  /// The wrapped optimizer evaluates the gradients several times in one step, by the closure that
  /// `step` is given. LBFGS is known to.
  bool reevaluates = false;

  /// Adapt-then-combine only: rounds begin in the backward pass (`AdaptInBackward`), which hides most
  /// of their time. Gradients can then not be clipped or scaled before they are used, and each step
  /// has one backward pass. Learning rates of a step are those that its backward pass finds.
  bool step_in_backward = false;

  BufferPolicy buffers = BufferPolicy::Local;

  /// For callers whose backward passes lead errors through other layers, as Python's do.
  RethrowInBackward rethrow_in_backward{};
};

}  // namespace bluefog::optimizers
