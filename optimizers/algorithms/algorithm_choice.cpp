#include "optimizers/algorithms/algorithm_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/adapt_in_backward.hpp"
#include "optimizers/algorithms/adapt_then_combine.hpp"
#include "optimizers/algorithms/adapt_with_combine.hpp"
#include "optimizers/algorithms/async_push_sum.hpp"
#include "optimizers/algorithms/decent_lam.hpp"
#include "optimizers/algorithms/exact_diffusion.hpp"
#include "optimizers/algorithms/extra.hpp"
#include "optimizers/algorithms/gossip_pga.hpp"
#include "optimizers/algorithms/gradient_allreduce.hpp"
#include "optimizers/algorithms/gradient_tracking.hpp"
#include "optimizers/algorithms/local_sgd.hpp"
#include "optimizers/algorithms/no_communication.hpp"
#include "optimizers/algorithms/pull_get.hpp"
#include "optimizers/algorithms/push_sum.hpp"
#include "optimizers/algorithms/quasi_global_momentum.hpp"
#include "optimizers/algorithms/win_put.hpp"
#include "optimizers/checks/mixing_requirements.hpp"
#include "topology/lazy_mixing.hpp"
#include "topology/mixing/sender_weights.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::optimizers {
namespace {

/// Self share with which no doubly stochastic W has an eigenvalue of −1/3 or below.
constexpr double kStableShare = 0.4;

/// β / (1 − β) above 1 carries a difference further than an average has taken it back.
constexpr double kMostChangingMomentum = 0.5;

std::vector<int> ranks_of(const std::vector<WeightedRank>& entries) {
  std::vector<int> ranks;
  std::ranges::transform(entries, std::back_inserter(ranks), &WeightedRank::rank);
  return ranks;
}

Schedule default_schedule(AlgorithmKind kind, int size) {
  if (!needs_fixed_symmetric_mixing(kind) && kind != AlgorithmKind::DecentLam) {
    return topology::static_schedule(topology::exponential(size));
  }
  const MixingMatrix graph = topology::symmetric_exponential(size);
  return topology::static_schedule(kind == AlgorithmKind::D2 ? topology::lazy(graph, kStableShare)
                                                             : graph);
}

/// True if ranks write and read each other's windows.
bool uses_windows(AlgorithmKind kind) {
  return kind == AlgorithmKind::WinPut || kind == AlgorithmKind::PullGet ||
         kind == AlgorithmKind::AsyncPushSum;
}

/// True if a step goes by what the one before exchanged.
bool needs_every_step(AlgorithmKind kind) {
  return needs_fixed_symmetric_mixing(kind) || kind == AlgorithmKind::GradientTracking ||
         kind == AlgorithmKind::DecentLam || kind == AlgorithmKind::QuasiGlobalMomentum;
}

std::string why_invalid_numbers(const DistributedOptimizerOptions& options) {
  if (name_of(options.algorithm) == "unknown") {
    return fmt::format("algorithm: expected a value of AlgorithmKind, found {}",
                       static_cast<int>(options.algorithm));
  }
  if (options.num_steps_per_communication < 1) {
    return fmt::format("num_steps_per_communication: expected at least 1, found {}",
                       options.num_steps_per_communication);
  }
  if (needs_every_step(options.algorithm) && options.num_steps_per_communication != 1) {
    return fmt::format(
        "num_steps_per_communication: {} expects 1, because a step goes by what was "
        "exchanged "
        "in the step before, found {}",
        name_of(options.algorithm), options.num_steps_per_communication);
  }
  if (options.global_period_rounds < 1) {
    return fmt::format("global_period_rounds: expected at least 1, found {}",
                       options.global_period_rounds);
  }
  if (!(options.momentum >= 0.0 && options.momentum < 1.0)) {
    return fmt::format("momentum: expected from 0 to below 1, found {}", options.momentum);
  }
  if (name_of(options.buffers) == "unknown") {
    return fmt::format("buffers: expected a value of BufferPolicy, found {}",
                       static_cast<int>(options.buffers));
  }
  if (options.stepping > Stepping::Whole) {
    return fmt::format("stepping: expected a value of Stepping, found {}",
                       static_cast<int>(options.stepping));
  }
  if (options.step_in_backward && options.algorithm != AlgorithmKind::AdaptThenCombine) {
    return fmt::format("step_in_backward: expected adapt_then_combine, found {}",
                       name_of(options.algorithm));
  }
  if (options.bucket_bytes < 0) {
    return fmt::format("bucket_bytes: expected 0 (the setting) or more, found {}",
                       options.bucket_bytes);
  }
  return {};
}

/// True if the wrapped optimizer may evaluate the gradients several times in one step: no evaluation
/// is a round, or lies between what a step sends and what it takes in.
bool allows_reevaluation(AlgorithmKind kind) {
  return kind == AlgorithmKind::AdaptThenCombine || kind == AlgorithmKind::GossipPga ||
         kind == AlgorithmKind::LocalSgd || kind == AlgorithmKind::None;
}

bool has_momentum(const DistributedOptimizerOptions& options) {
  return options.momentum > 0.0 && (options.algorithm == AlgorithmKind::DecentLam ||
                                    options.algorithm == AlgorithmKind::QuasiGlobalMomentum);
}

std::string why_unfit_schedule(const DistributedOptimizerOptions& options,
                               const Schedule& schedule) {
  std::string found = why_unfit(options.algorithm, schedule);
  return found.empty() && has_momentum(options)
             ? why_unfit_momentum(options.algorithm, options.momentum, schedule)
             : found;
}

/// What one rank sees of a W that DecentLaM with momentum may diverge on (`growth_per_round`).
std::string why_unfit_decent_lam(double momentum, const NeighborPlan& plan,
                                 const NeighborPlan* before) {
  if (!std::ranges::equal(plan.sources, plan.destinations, {}, &WeightedRank::rank,
                          &WeightedRank::rank)) {
    return fmt::format(
        "decent_lam with momentum expects a symmetric W, because its momentum may grow without "
        "bound otherwise, so that a rank sends to those that it hears, found a plan that hears [{}] "
        "and sends to [{}]; quasi_global_momentum accepts those",
        fmt::join(ranks_of(plan.sources), ", "), fmt::join(ranks_of(plan.destinations), ", "));
  }
  if (momentum > kMostChangingMomentum && before != nullptr && plan != *before) {
    return fmt::format(
        "decent_lam with momentum {} expects the same plan in every round, because above {} it may "
        "carry differences between ranks further than an average took them back, found another one "
        "than in the round before; use a schedule, which is looked at as a whole, a smaller "
        "momentum, or quasi_global_momentum",
        momentum, kMostChangingMomentum);
  }
  return {};
}

}  // namespace

std::string_view name_of(AlgorithmKind kind) {
  switch (kind) {
    case AlgorithmKind::GradientAllreduce:
      return "gradient_allreduce";
    case AlgorithmKind::AdaptThenCombine:
      return "adapt_then_combine";
    case AlgorithmKind::AdaptWithCombine:
      return "adapt_with_combine";
    case AlgorithmKind::None:
      return "none";
    case AlgorithmKind::Extra:
      return "extra";
    case AlgorithmKind::ExactDiffusion:
      return "exact_diffusion";
    case AlgorithmKind::D2:
      return "d2";
    case AlgorithmKind::GradientTracking:
      return "gradient_tracking";
    case AlgorithmKind::PushSum:
      return "push_sum";
    case AlgorithmKind::GossipPga:
      return "gossip_pga";
    case AlgorithmKind::LocalSgd:
      return "local_sgd";
    case AlgorithmKind::DecentLam:
      return "decent_lam";
    case AlgorithmKind::QuasiGlobalMomentum:
      return "quasi_global_momentum";
    case AlgorithmKind::WinPut:
      return "win_put";
    case AlgorithmKind::PullGet:
      return "pull_get";
    case AlgorithmKind::AsyncPushSum:
      return "async_push_sum";
  }
  return "unknown";
}

std::unique_ptr<Algorithm> make_algorithm(const DistributedOptimizerOptions& options,
                                          Context& context, std::vector<Bucket>& buckets,
                                          EarlyStep early) {
  switch (options.algorithm) {
    case AlgorithmKind::GradientAllreduce:
      return std::make_unique<GradientAllreduce>(context, buckets, options.rethrow_in_backward);
    case AlgorithmKind::AdaptThenCombine:
      if (options.step_in_backward) {
        return std::make_unique<AdaptInBackward>(context, buckets, std::move(early),
                                                 options.rethrow_in_backward);
      }
      return std::make_unique<AdaptThenCombine>(context, buckets);
    case AlgorithmKind::AdaptWithCombine:
      return std::make_unique<AdaptWithCombine>(context, buckets);
    case AlgorithmKind::None:
      return std::make_unique<NoCommunication>(buckets);
    case AlgorithmKind::Extra:
      return std::make_unique<Extra>(context, buckets);
    case AlgorithmKind::ExactDiffusion:
    case AlgorithmKind::D2:
      return std::make_unique<ExactDiffusion>(context, buckets);
    case AlgorithmKind::GradientTracking:
      return std::make_unique<GradientTracking>(context, buckets);
    case AlgorithmKind::PushSum:
      return std::make_unique<PushSum>(context, buckets);
    case AlgorithmKind::GossipPga:
      return std::make_unique<GossipPga>(context, buckets, options.global_period_rounds);
    case AlgorithmKind::LocalSgd:
      return std::make_unique<LocalSgd>(context, buckets);
    case AlgorithmKind::DecentLam:
      return std::make_unique<DecentLam>(context, buckets, options.momentum);
    case AlgorithmKind::QuasiGlobalMomentum:
      return std::make_unique<QuasiGlobalMomentum>(context, buckets, options.momentum);
    case AlgorithmKind::WinPut:
      return std::make_unique<WinPut>(context, buckets, mixing_of(options, context.size()));
    case AlgorithmKind::PullGet:
      return std::make_unique<PullGet>(context, buckets, mixing_of(options, context.size()));
    case AlgorithmKind::AsyncPushSum:
      return std::make_unique<AsyncPushSum>(context, buckets, mixing_of(options, context.size()));
  }
  throw InternalError("make_algorithm: options that were not checked");
}

Schedule mixing_of(const DistributedOptimizerOptions& options, int size) {
  Schedule schedule =
      options.schedule ? *options.schedule : default_schedule(options.algorithm, size);
  switch (options.algorithm) {
    case AlgorithmKind::ExactDiffusion:
      return topology::static_schedule(topology::lazy(schedule.mixing_matrix(0)));
    case AlgorithmKind::AsyncPushSum:
      return topology::weighed_by_senders(std::move(schedule));
    default:
      return schedule;
  }
}

std::string why_invalid(const DistributedOptimizerOptions& options, int size) {
  std::string problem = why_invalid_numbers(options);
  if (!problem.empty()) {
    return problem;
  }
  if (options.schedule && options.plans && !uses_windows(options.algorithm)) {
    return "plans: expected a schedule or plans, found both";
  }
  if (options.plans && needs_fixed_symmetric_mixing(options.algorithm)) {
    return fmt::format(
        "plans: {} expects the same W in every round, because it corrects a step by what W did in "
        "the "
        "step before, found a function of the round; use a static schedule",
        name_of(options.algorithm));
  }
  if (!options.schedule) {
    return {};
  }
  if (options.schedule->size() != size) {
    return fmt::format("schedule: expected one for {} ranks, found one for {}", size,
                       options.schedule->size());
  }
  try {
    return why_unfit_schedule(options, *options.schedule);
  } catch (const std::exception& error) {  // of a schedule that cannot make all of its rounds
    return fmt::format("schedule: {}", error.what());
  }
}

std::string why_untrainable(AlgorithmKind kind, const NamedTensors& parameters) {
  if (!hands_out_shares(kind)) {
    return {};
  }
  for (const auto& [name, tensor] : parameters) {
    if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble) {
      return fmt::format(
          "parameter '{}': {} expects float32 or float64, because each step multiplies by a weight "
          "and divides by it again, found {}",
          name, name_of(kind), describe(tensor));
    }
  }
  return {};
}

std::string why_elsewhere(const NamedTensors& parameters, const Context& context) {
  const int used = context.core().device() ? context.core().device()->device() : -1;
  for (const auto& [name, tensor] : parameters) {
    const Device device = device_holding(tensor);
    if (device != device_holding(parameters.front().tensor)) {
      return fmt::format("parameter '{}': expected all parameters on one device, found {}, and {} for '{}'",
                         name, describe(tensor), describe(parameters.front().tensor),
                         parameters.front().name);
    }
    if (device.kind == DeviceKind::Cpu) {
      continue;
    }
    if (device.index != used) {
      return fmt::format(
          "parameter '{}': expected a tensor on the CPU or on the device of the context "
          "(Context::use_device), {}, found {}",
          name, used < 0 ? "which has none" : fmt::format("CUDA device {}", used), describe(tensor));
    }
  }
  return {};
}

bool has_gradient_hooks(const DistributedOptimizerOptions& options) {
  return options.step_in_backward || options.algorithm == AlgorithmKind::GradientAllreduce;
}

std::string why_not_stepped(const DistributedOptimizerOptions& options,
                            const torch::optim::Optimizer& optimizer) {
  const bool evaluates = reevaluates(optimizer, options.reevaluates);
  if (options.step_in_backward && (options.stepping == Stepping::Whole || evaluates)) {
    return "step_in_backward: expected an optimizer that is stepped by bucket, found one that is "
           "stepped as a whole";
  }
  if (evaluates && options.stepping == Stepping::ByBucket) {
    return "stepping: an optimizer that evaluates the model several times a step (LBFGS) expects to "
           "be stepped as a whole, because its direction depends on all parameters at once, found "
           "by bucket";
  }
  if (evaluates && !allows_reevaluation(options.algorithm)) {
    return fmt::format(
        "algorithm: an optimizer that evaluates the model several times a step (LBFGS) expects "
        "adapt_then_combine, gossip_pga, local_sgd or none, found {}",
        name_of(options.algorithm));
  }
  return {};
}

std::string why_unfit(const DistributedOptimizerOptions& options, const NeighborPlan& plan,
                      const NeighborPlan* before) {
  const AlgorithmKind kind = options.algorithm;
  if (kind == AlgorithmKind::DecentLam && options.momentum > 0.0) {
    return why_unfit_decent_lam(options.momentum, plan, before);
  }
  if (needs_fixed_symmetric_mixing(kind)) {
    return fmt::format("{} expects the same W in every round, found a plan for one round",
                       name_of(kind));
  }
  if (!hands_out_shares(kind)) {
    return {};
  }
  double handed_out = plan.self_weight;
  bool is_split = plan.self_weight > 0.0;
  for (const WeightedRank& destination : plan.destinations) {
    handed_out += destination.weight;
    is_split = is_split && destination.weight >= 0.0;
  }
  for (const WeightedRank& source : plan.sources) {
    is_split = is_split && source.weight == 1.0;
  }
  if (is_split && std::abs(handed_out - 1.0) <= 1e-9) {
    return {};
  }
  return fmt::format(
      "{} expects a self weight above 0 that sums to 1 with the destinations' weights, and "
      "sources of weight 1, so that each rank hands out all of what it has; found a self weight of "
      "{} "
      "and a sum of {}{}",
      name_of(kind), plan.self_weight, handed_out,
      is_split ? "" : ", or weights that are none of those");
}

}  // namespace bluefog::optimizers
