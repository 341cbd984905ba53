#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/settings.hpp"
#include "ops/compression.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "optimizers/algorithm_name.hpp"
#include "optimizers/buffer_policy.hpp"
#include "optimizers/local_step.hpp"
#include "optimizers/rethrow_in_backward.hpp"
#include "optimizers/row_sums.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// This rank's part of communication round 0, 1, …; called once for each, in order.
using PlanOfRound = std::function<NeighborPlan(std::int64_t round)>;

/// The moments that an Adam-like optimizer keeps of a parameter, where they lie; undefined ones where it
/// has none yet.
struct ParameterMoments {
  at::Tensor first{};   ///< m, of gradients
  at::Tensor second{};  ///< v, of their squares
};
/// The moments of one of the wrapped optimizer's parameters, after a step of it.
using MomentsOf = std::function<ParameterMoments(const at::Tensor& parameter)>;

/// How a `DistributedOptimizer` works. The same on all ranks.
struct DistributedOptimizerOptions {
  /// The way in which ranks work together (`algorithms()`, docs/optimizers.md).
  AlgorithmName algorithm = AlgorithmName::AdaptThenCombine;

  /// W(t) of communication round t. Default: the static exponential graph, base 2; where W must be
  /// symmetric the symmetric exponential graph, for D² with a self share of 0.4 (`topology::lazy`).
  std::optional<Schedule> schedule{};

  /// Makes `schedule` for another number of ranks, where a process has joined
  /// (`Context::regroup`). Empty: the default schedule takes its place then, with a line in the log.
  std::function<Schedule(const Context&)> make_schedule{};

  /// In place of a schedule: plans that this rank makes as it goes. Each costs an allocation. With
  /// windows beside a schedule: its neighbours are those that plans may name.
  PlanOfRound plans{};
  /// Whether the ranks compare what `plans` gives before any data moves: one all-gather a round.
  /// With windows, where no rank waits for another, nothing is compared.
  ops::PlanCheck plan_check = ops::PlanCheck::Checked;

  /// Whether rounds may average with rows of W that do not sum to 1. Algorithms whose row asks for
  /// certain sums, as push-sum's for columns, go by that alone.
  RowSums row_sums = RowSums::One;

  /// Every k-th `step` communicates; at least 1. The steps between are the algorithm's
  /// matter: local steps, or, with gradient all-reduce, adding up gradients. Algorithms that
  /// correct their bias by what they exchanged in the step before refuse k > 1.
  std::int64_t num_steps_per_communication = 1;

  /// H of Gossip-PGA, at least 1.
  std::int64_t global_period_rounds = 6;

  /// β of DecentLaM and QG-DSGDm, from 0 to below 1. The wrapped optimizer has none of its own
  /// then.
  double momentum = 0.9;

  /// Options that the algorithm's row lists and that have no field here, as those of algorithms
  /// that programs register; what is left out has the row's default.
  std::map<std::string, double, std::less<>> numbers{};

  /// Parameters travel in pieces of up to this size. 0: `BLUEFOG_FUSION_THRESHOLD`, and where
  /// pieces leave in the backward pass at most 1 MiB with `step_in_backward`, 2 MiB of gradient
  /// all-reduce, whose first has up to 1 MiB.
  std::int64_t bucket_bytes = 0;

  /// Whether the wrapped optimizer is stepped bucket by bucket.
  Stepping stepping = Stepping::Auto;

  /// The wrapped optimizer evaluates the gradients several times in one step, by the closure that
  /// `step` is given. LBFGS is known to.
  bool reevaluates = false;
  /// The same as `LocalStep` takes it.
  [[nodiscard]] Evaluation evaluation() const noexcept {
    return reevaluates ? Evaluation::Repeated : Evaluation::ByClass;
  }

  /// Adapt-then-combine only: rounds begin in the backward pass (`AdaptInBackward`), which hides
  /// most of their time. Gradients can then not be clipped or scaled before they are used, and each
  /// step has one backward pass. Learning rates of a step are those that its backward pass finds.
  bool step_in_backward = false;

  /// The code of what algorithms send that can take one (CHOCO); null: the one that their row lists.
  /// Its name is the same on all ranks.
  std::shared_ptr<const ops::Compression> compression{};

  /// The treatment of tensors that the model keeps beside its parameters.
  BufferPolicy buffers = BufferPolicy::Local;

  /// What `step` does where a rank is lost; absent: as `Settings::on_failure`. Shrink: it goes on
  /// with the ranks that are left (docs/membership.md), without an error.
  std::optional<OnFailure> on_failure{};
  /// Called when it has gone on so, with the new context: for what the program has besides (its own
  /// calls and numbers of ranks). Its exceptions leave `step`, except RankLostError of its own
  /// calls, by another rank's end: it is called again then.
  std::function<void(const std::shared_ptr<Context>&)> when_shrunk{};

  /// Collective: gives all ranks the wrapped optimizer's state of that one, where models are to be
  /// equal and a rank is lost, and where one joins. Empty: `broadcast_optimizer_state`, which the
  /// others heed only where models are to be equal.
  std::function<void(Context&, int of_rank)> share_state{};

  /// The name of the call that makes the optimizer, for messages: callers of another language have
  /// others.
  std::string call_name = "DistributedOptimizer";

  /// The wrapped optimizer's learning rate, where torch's does not tell it, as an optimizer of
  /// Python's does not; empty: that of its first group.
  std::function<double()> learning_rate{};

  /// The wrapped optimizer's moments, for algorithms that average them (`average_moments`), where its
  /// class does not tell them, as one of Python's does not; empty: those of torch's Adam and AdamW,
  /// and of `AccumAdam` and `AccumAdamW`.
  MomentsOf moments{};

  /// For callers whose backward passes lead errors through other layers, as Python's do.
  RethrowInBackward rethrow_in_backward{};
};

}  // namespace bluefog::optimizers
