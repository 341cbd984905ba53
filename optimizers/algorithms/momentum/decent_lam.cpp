#include "optimizers/algorithms/momentum/decent_lam.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/checks/mixing_requirements.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::optimizers {
namespace {

/// β / (1 − β) above 1 carries a difference further than an average has taken it back.
constexpr double kMostChangingMomentum = 0.5;

std::vector<int> ranks_of(const std::vector<WeightedRank>& entries) {
  std::vector<int> ranks;
  std::ranges::transform(entries, std::back_inserter(ranks), &WeightedRank::rank);
  return ranks;
}

/// The part of a W on which momentum may diverge (`growth_per_round`) that one rank sees.
std::string why_unfit_decent_lam(const DistributedOptimizerOptions& options,
                                 const NeighborPlan& plan, const NeighborPlan* before) {
  if (options.momentum <= 0.0) {
    return {};
  }
  if (!std::ranges::equal(plan.sources, plan.destinations, {}, &WeightedRank::rank,
                          &WeightedRank::rank)) {
    return fmt::format(
        "decent_lam with momentum expects a symmetric W, because its momentum may grow without "
        "bound otherwise, so that a rank sends to those that it hears, found a plan that hears "
        "[{}] and sends to [{}]; quasi_global_momentum accepts those",
        fmt::join(ranks_of(plan.sources), ", "), fmt::join(ranks_of(plan.destinations), ", "));
  }
  if (options.momentum > kMostChangingMomentum && before != nullptr && plan != *before) {
    return fmt::format(
        "decent_lam with momentum {} expects the same plan in every round, because above {} it may "
        "carry differences between ranks further than an average took them back, found another one "
        "than in the round before; use a schedule, which is looked at as a whole, a smaller "
        "momentum, or quasi_global_momentum",
        options.momentum, kMostChangingMomentum);
  }
  return {};
}

}  // namespace

void DecentLam::step(const Round& round, const StepBucket& step_bucket) {
  keep_values(buckets_, starts_);
  averages_.run(round, [&](std::size_t b) { step_bucket(buckets_[b]); });
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [beta = momentum_](auto& x, auto& v, const auto& start) {
          v = NumberOf<decltype(v)>(beta) * v + (start - x);
          x = start - v;
        },
        buckets_[b].flat(), moments_[b], ReadOnly{starts_[b]});
  }
  note_changes(buckets_);
}

AlgorithmRow decent_lam_row() {
  AlgorithmRow row = averaged_momentum_row();
  row.name = "decent_lam";
  row.equation = "v ← β v + x − W (x − γ d); x ← x − v";
  row.description =
      "Momentum over what a step of adapt-then-combine changes, without the bias that "
      "momentum in the wrapped optimizer adds; the paper's at a constant rate alone.";
  row.source = "arXiv 2104.11981";
  row.bound_to_values = "its momentum";
  row.default_schedule = [](int size) {
    return topology::static_schedule(topology::symmetric_exponential(size));
  };
  row.why_unfit_schedule = [](const DistributedOptimizerOptions& options,
                              const Schedule& schedule) {
    return options.momentum > 0.0
               ? why_unfit_momentum(options.algorithm,
                                    DecentLam::without_gradients(options.momentum), schedule)
               : std::string();
  };
  row.why_unfit_plan = why_unfit_decent_lam;
  row.make = [](AlgorithmParts parts) {
    return std::make_unique<DecentLam>(parts.context, parts.buckets, parts.options.momentum);
  };
  return row;
}

}  // namespace bluefog::optimizers
