#include "optimizers/checks/mixing_requirements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "topology/analysis/least_eigenvalue.hpp"
#include "topology/spectral_gap.hpp"

namespace bluefog::optimizers {
namespace {

constexpr std::int64_t kStepsLookedAt = 256;
constexpr double kSumTolerance = 1e-9;
/// Weights that were computed in float32, or written with seven digits, make an average.
constexpr double kAverageTolerance = 1e-6;
/// An eigenvalue this near to a bound counts as on it.
constexpr double kEigenvalueMargin = 1e-9;

/// "row 2 sums to 0.9" of the worst one; empty if all sum to 1.
std::string worst_sum(const std::vector<double>& sums, const char* what,
                      double tolerance = kSumTolerance) {
  const auto worst =
      std::ranges::max_element(sums, {}, [](double sum) { return std::abs(sum - 1.0); });
  return std::abs(*worst - 1.0) <= tolerance
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

/// The first place that keeps W from being doubly stochastic; empty if there is none.
std::string not_doubly_stochastic(const MixingMatrix& matrix) {
  std::string found = negative_weight(matrix);
  found = found.empty() ? worst_sum(matrix.row_sums(), "row") : found;
  return found.empty() ? worst_sum(matrix.column_sums(), "column") : found;
}

/// The first weight below 0, or sum other than 1, that the algorithm does not bear; empty if none.
std::string wrong_weights(const MixingNeeds& needs, RowSums row_sums, const MixingMatrix& matrix) {
  switch (needs.stochastic) {
    case Stochastic::Any:
      return {};
    case Stochastic::Averages:
      return row_sums == RowSums::Any ? std::string()
                                      : worst_sum(matrix.row_sums(), "row", kAverageTolerance);
    case Stochastic::RowsAndColumns:
      return not_doubly_stochastic(matrix);
    case Stochastic::Rows:
    case Stochastic::Columns:
      break;
  }
  std::string found = negative_weight(matrix);
  const bool of_columns = needs.stochastic == Stochastic::Columns;
  return !found.empty() ? found
                        : worst_sum(of_columns ? matrix.column_sums() : matrix.row_sums(),
                                    of_columns ? "column" : "row");
}

std::string expected_weights(const MixingNeeds& needs) {
  if (needs.stochastic == Stochastic::Averages) {
    return "rows that sum to 1, because ranks that agree would else leave what they agree on";
  }
  if (needs.stochastic == Stochastic::Columns) {
    return "weights of at least 0 and columns that sum to 1, because each rank hands out all of "
           "what it has";
  }
  if (needs.stochastic == Stochastic::Rows || needs.is_symmetric) {
    return "weights of at least 0 and rows that sum to 1";
  }
  return fmt::format(
      "weights of at least 0, rows that sum to 1 for agreement, and columns that sum to 1 to keep "
      "{}",
      needs.kept_mean);
}

/// The ways out of a row that does not sum to 1.
std::string ways_to_average(const MixingNeeds& needs) {
  return needs.stochastic == Stochastic::Averages
             ? "; correct the weights, use push_sum if the columns sum to 1, or ask for such sums: "
               "row_sums = RowSums::Any, in Python row_sums='any'"
             : "";
}

/// Differences between ranks that grow with every average. Weights of at least 0 never do that.
std::string why_growing(const AlgorithmRow& row, const MixingMatrix& matrix) {
  const std::string negative = negative_weight(matrix);
  if (negative.empty()) {
    return {};
  }
  const topology::GapEstimate gap = topology::spectral_gap(matrix).lambda2;
  return gap.upper >= -kEigenvalueMargin
             ? std::string()
             : fmt::format(
                   "schedule: {} expects every eigenvalue of W within the unit circle, because "
                   "differences between ranks would else grow with every average, found one of "
                   "modulus {:.6g} ({}); correct the weights, or ask for such matrices: "
                   "row_sums = RowSums::Any, in Python row_sums='any'",
                   row.name, 1.0 - gap.value, negative);
}

std::string why_unstable(const AlgorithmRow& row, const MixingMatrix& matrix) {
  const EigenvalueBound& bound = *row.mixing.eigenvalues_above;
  const topology::EigenvalueEstimate least = topology::least_eigenvalue(matrix);
  if (least.converged && least.value - least.error > bound.value + kEigenvalueMargin) {
    return {};
  }
  return fmt::format(
      "schedule: {} expects every eigenvalue of W above {}, found {}{:.6g}; give ranks a larger "
      "self weight (topology::lazy; in Python topology_util.LazyGraph), or use exact_diffusion",
      row.name, bound.text, least.converged ? "" : "an estimate of ", least.value);
}

std::string why_unfit_matrix(const AlgorithmRow& row, RowSums row_sums, const MixingMatrix& matrix,
                             std::int64_t step, bool is_only_round) {
  const MixingNeeds& needs = row.mixing;
  const auto with = [&](const std::string& found) {
    return needs.is_fixed ? fmt::format(", found {}", found)
                          : fmt::format("; found in round {}: {}", step, found);
  };
  if (needs.is_symmetric && !matrix.is_symmetric()) {
    return fmt::format(
        "schedule: {} expects a symmetric W, because {}{}; see topology::symmetric_exponential",
        row.name, needs.symmetric_because, with(first_asymmetry(matrix)));
  }
  if (const std::string found = wrong_weights(needs, row_sums, matrix); !found.empty()) {
    return fmt::format("schedule: {} expects {}{}{}", row.name, expected_weights(needs),
                       with(found), ways_to_average(needs));
  }
  if (needs.stochastic == Stochastic::Columns) {
    const std::vector<double> kept = matrix.row_sums();
    const auto empty = std::ranges::find_if(kept, [](double sum) { return !(sum > 0.0); });
    if (empty != kept.end()) {
      return fmt::format("schedule: {} expects every rank to keep or receive something{}", row.name,
                         with(fmt::format("row {} sums to 0", empty - kept.begin())));
    }
  }
  if (needs.eigenvalues_above) {
    return why_unstable(row, matrix);
  }
  // Rounds of a period may grow one by one and shrink together.
  return needs.stochastic == Stochastic::Averages && is_only_round && row_sums == RowSums::One
             ? why_growing(row, matrix)
             : std::string();
}

}  // namespace

std::string why_unfit(const AlgorithmRow& row, const Schedule& schedule, RowSums row_sums) {
  const MixingNeeds& needs = row.mixing;
  if (needs.is_fixed && schedule.period_steps() != 1) {
    return fmt::format(
        "schedule: {} expects the same W in every round, because {}, found a period of {} rounds; "
        "gradient_tracking accepts those",
        row.name, needs.fixed_because, schedule.period_steps());
  }
  const bool bears_any_sums =
      needs.stochastic == Stochastic::Any ||
      (needs.stochastic == Stochastic::Averages && row_sums == RowSums::Any);
  if (bears_any_sums && !needs.is_symmetric && !needs.eigenvalues_above) {
    return {};
  }
  const std::int64_t steps = std::min(schedule.period_steps(), kStepsLookedAt);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::string found = why_unfit_matrix(row, row_sums, schedule.mixing_matrix(step), step,
                                         schedule.period_steps() == 1);
    if (!found.empty()) {
      return found;
    }
  }
  return {};
}

std::string why_no_average(const AlgorithmRow& row, const NeighborPlan& plan) {
  if (row.mixing.stochastic != Stochastic::Averages) {
    return {};
  }
  const auto weighted = std::ranges::find_if(
      plan.destinations, [](const WeightedRank& entry) { return entry.weight != 1.0; });
  // Plans of windows choose among neighbours, and say with which weights values come to them.
  if (row.uses_windows && (weighted != plan.destinations.end() ||
                           (plan.destinations.empty() && !plan.sources.empty()))) {
    return {};
  }
  if (weighted != plan.destinations.end()) {
    return fmt::format(
        "{} expects weights at the receivers (of sources), which see then that theirs sum to 1, "
        "found that rank {} sends to rank {} with weight {}{}",
        row.name, plan.rank, weighted->rank, weighted->weight, ways_to_average(row.mixing));
  }
  double sum = plan.self_weight;
  for (const WeightedRank& source : plan.sources) {
    sum += source.weight;
  }
  return std::abs(sum - 1.0) <= kAverageTolerance
             ? std::string()
             : fmt::format(
                   "{} expects {}, found that row {} sums to {} (self weight and weights of "
                   "sources){}",
                   row.name, expected_weights(row.mixing), plan.rank, sum,
                   ways_to_average(row.mixing));
}

std::string why_unfit_momentum(const AlgorithmName& algorithm, const MomentumRecursion& recursion,
                               const Schedule& schedule) {
  const std::string found = why_differences_stay(recursion, schedule);
  return found.empty()
             ? found
             : fmt::format(
                   "schedule: {} with momentum {} expects differences between ranks to die out "
                   "where there are no gradients, found that they {}; use another momentum, or one "
                   "symmetric W in all rounds with self weights of at least 1/2 (topology::lazy; in "
                   "Python topology_util.LazyGraph)",
                   algorithm.text(), recursion.momentum, found);
}

}  // namespace bluefog::optimizers
