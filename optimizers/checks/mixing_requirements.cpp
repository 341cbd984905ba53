#include "optimizers/checks/mixing_requirements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "optimizers/checks/momentum_growth.hpp"
#include "topology/analysis/least_eigenvalue.hpp"

namespace bluefog::optimizers {
namespace {

constexpr std::int64_t kStepsLookedAt = 256;
constexpr double kSumTolerance = 1e-9;
/// An eigenvalue this near to a bound counts as on it.
constexpr double kEigenvalueMargin = 1e-9;
/// A factor per round that momentum may reach: what lies on the bound grows by rounding alone.
constexpr double kMostGrowth = 1.001;

/// "row 2 sums to 0.9" of the worst one; empty if all sum to 1.
std::string worst_sum(const std::vector<double>& sums, const char* what) {
  const auto worst =
      std::ranges::max_element(sums, {}, [](double sum) { return std::abs(sum - 1.0); });
  return std::abs(*worst - 1.0) <= kSumTolerance
             ? std::string()
             : fmt::format("{} {} sums to {}", what, worst - sums.begin(), *worst);
}

/// "W(0, 1) = 0.5 and W(1, 0) = 0" of the first pair that differs.
std::string first_asymmetry(const MixingMatrix& matrix) {
  for (int i = 0; i < matrix.size(); ++i) {
    for (const WeightedRank& entry : matrix.row(i)) {
      const double mirrored = matrix.weight(entry.rank, i);
      if (std::abs(mirrored - entry.weight) > 1e-14) {
        return fmt::format("W({}, {}) = {} and W({}, {}) = {}", i, entry.rank, entry.weight,
                           entry.rank, i, mirrored);
      }
    }
  }
  return "weights that differ";
}

std::string negative_weight(const MixingMatrix& matrix) {
  for (int i = 0; i < matrix.size(); ++i) {
    for (const WeightedRank& entry : matrix.row(i)) {
      if (entry.weight < 0.0) {
        return fmt::format("W({}, {}) = {}", i, entry.rank, entry.weight);
      }
    }
  }
  return {};
}

/// Where W is not doubly stochastic; empty if it is.
std::string not_doubly_stochastic(const MixingMatrix& matrix) {
  std::string found = negative_weight(matrix);
  found = found.empty() ? worst_sum(matrix.row_sums(), "row") : found;
  return found.empty() ? worst_sum(matrix.column_sums(), "column") : found;
}

std::string why_unstable(AlgorithmKind kind, const MixingMatrix& matrix) {
  const bool is_d2 = kind == AlgorithmKind::D2;
  if (!is_d2 && kind != AlgorithmKind::Extra) {
    return {};  // ½ (I + W) has no eigenvalue below 0
  }
  const double bound = is_d2 ? -1.0 / 3.0 : -1.0;
  const topology::EigenvalueEstimate least = topology::least_eigenvalue(matrix);
  if (least.converged && least.value - least.error > bound + kEigenvalueMargin) {
    return {};
  }
  return fmt::format(
      "schedule: {} expects every eigenvalue of W above {}, found {}{:.6g}; give ranks a larger "
      "self weight (topology::lazy; in Python topology_util.LazyGraph), or use exact_diffusion",
      name_of(kind), is_d2 ? "-1/3" : "-1", least.converged ? "" : "an estimate of ", least.value);
}

std::string why_unfit_fixed(AlgorithmKind kind, const Schedule& schedule) {
  if (schedule.period_steps() != 1) {
    return fmt::format(
        "schedule: {} expects the same W in every round, because it corrects a step by what W did "
        "in the step before, found a period of {} rounds; gradient_tracking accepts those",
        name_of(kind), schedule.period_steps());
  }
  const MixingMatrix matrix = schedule.mixing_matrix(0);
  if (!matrix.is_symmetric()) {
    return fmt::format(
        "schedule: {} expects a symmetric W, because its corrections cancel only between ranks "
        "that "
        "weigh each other alike, found {}; see topology::symmetric_exponential",
        name_of(kind), first_asymmetry(matrix));
  }
  const std::string found = not_doubly_stochastic(matrix);
  if (!found.empty()) {
    return fmt::format(
        "schedule: {} expects weights of at least 0 and rows that sum to 1, found {}",
        name_of(kind), found);
  }
  return why_unstable(kind, matrix);
}

std::string why_unfit_tracking(const MixingMatrix& matrix, std::int64_t step) {
  const std::string found = not_doubly_stochastic(matrix);
  return found.empty() ? found
                       : fmt::format(
                             "schedule: gradient_tracking expects weights of at least 0, "
                             "rows that sum to 1 for agreement, and columns that sum to 1 "
                             "to keep the mean gradient; found in round {}: {}",
                             step, found);
}

std::string why_unfit_push(AlgorithmKind kind, const MixingMatrix& matrix, std::int64_t step) {
  std::string found = negative_weight(matrix);
  found = found.empty() ? worst_sum(matrix.column_sums(), "column") : found;
  if (!found.empty()) {
    return fmt::format(
        "schedule: {} expects weights of at least 0 and columns that sum to 1, because each "
        "rank hands out all of what it has; found in round {}: {}",
        name_of(kind), step, found);
  }
  const std::vector<double> kept = matrix.row_sums();
  const auto empty = std::ranges::find_if(kept, [](double sum) { return !(sum > 0.0); });
  return empty == kept.end() ? std::string()
                             : fmt::format(
                                   "schedule: {} expects every rank to keep or receive something; "
                                   "found in round {}: row {} sums to 0",
                                   name_of(kind), step, empty - kept.begin());
}

}  // namespace

bool needs_fixed_symmetric_mixing(AlgorithmKind kind) noexcept {
  return kind == AlgorithmKind::Extra || kind == AlgorithmKind::ExactDiffusion ||
         kind == AlgorithmKind::D2;
}

bool hands_out_shares(AlgorithmKind kind) noexcept {
  return kind == AlgorithmKind::PushSum || kind == AlgorithmKind::AsyncPushSum;
}

std::string why_unfit(AlgorithmKind kind, const Schedule& schedule) {
  if (needs_fixed_symmetric_mixing(kind)) {
    return why_unfit_fixed(kind, schedule);
  }
  if (kind != AlgorithmKind::GradientTracking && !hands_out_shares(kind)) {
    return {};
  }
  const std::int64_t steps = std::min(schedule.period_steps(), kStepsLookedAt);
  for (std::int64_t step = 0; step < steps; ++step) {
    const MixingMatrix matrix = schedule.mixing_matrix(step);
    std::string found = hands_out_shares(kind) ? why_unfit_push(kind, matrix, step)
                                               : why_unfit_tracking(matrix, step);
    if (!found.empty()) {
      return found;
    }
  }
  return {};
}

std::string why_unfit_momentum(AlgorithmKind kind, double momentum, const Schedule& schedule) {
  const double growth = growth_per_round(kind, momentum, schedule);
  return growth <= kMostGrowth
             ? std::string()
             : fmt::format(
                   "schedule: {} with momentum {} expects differences between ranks to die out "
                   "where there are no gradients, found that they grow by a factor of {:.4g} a "
                   "round; use another momentum, or one symmetric W in all rounds with self weights "
                   "of at least 1/2 (topology::lazy; in Python topology_util.LazyGraph)",
                   name_of(kind), momentum, growth);
}

}  // namespace bluefog::optimizers
