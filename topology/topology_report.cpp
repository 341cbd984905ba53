#include "topology/topology_report.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace bluefog::topology {
namespace {

/// Sums over a pattern say the same of every rank: look at one.
int ranks_to_look_at(const MixingMatrix& matrix) { return matrix.pattern() ? 1 : matrix.size(); }

double largest_deviation(const std::vector<double>& sums, double expected) {
  double largest = 0.0;
  for (const double sum : sums) largest = std::max(largest, std::abs(sum - expected));
  return largest;
}

void look_at_step(const MixingMatrix& matrix, TopologyReport& report) {
  report.row_error = std::max(report.row_error, largest_deviation(matrix.row_sums(), 1.0));
  report.column_error = std::max(report.column_error, largest_deviation(matrix.column_sums(), 1.0));
  for (int rank = 0; rank < ranks_to_look_at(matrix); ++rank) {
    const NeighborPlan plan = matrix.plan_for(rank);
    report.max_in_degree = std::max(report.max_in_degree, static_cast<int>(plan.sources.size()));
    report.max_out_degree =
        std::max(report.max_out_degree, static_cast<int>(plan.destinations.size()));
    report.has_negative_weight |=
        plan.self_weight < 0.0 || std::ranges::any_of(plan.sources, [](const WeightedRank& source) {
          return source.weight < 0.0;
        });
  }
}

/// Entries that `second.after(first)` could have.
double product_bound(const MixingMatrix& second, const MixingMatrix& first) {
  const double size = second.size();
  if (second.pattern() && first.pattern()) {
    // One row of the product, before equal offsets are added up.
    return static_cast<double>(second.entry_count()) / size *
           (static_cast<double>(first.entry_count()) / size);
  }
  const double rows =
      static_cast<double>(second.entry_count()) * (static_cast<double>(first.entry_count()) / size);
  return std::min(rows, size * size);
}

/// W(T − 1) … W(0), or nothing where that grows too large.
std::optional<MixingMatrix> product_of_period(const Schedule& schedule,
                                              const ReportOptions& options) {
  MixingMatrix product = schedule.mixing_matrix(0);
  for (std::int64_t step = 1; step < schedule.period_steps(); ++step) {
    const MixingMatrix next = schedule.mixing_matrix(step);
    if (product_bound(next, product) > static_cast<double>(options.max_product_entries)) {
      return std::nullopt;
    }
    product = next.after(product);
  }
  return product;
}

double distance_from_mean(const MixingMatrix& matrix) {
  const double mean = 1.0 / matrix.size();
  double largest = 0.0;
  for (int rank = 0; rank < ranks_to_look_at(matrix); ++rank) {
    const std::vector<WeightedRank> row = matrix.row(rank);
    if (static_cast<int>(row.size()) < matrix.size()) largest = std::max(largest, mean);
    for (const WeightedRank& entry : row) {
      largest = std::max(largest, std::abs(entry.weight - mean));
    }
  }
  return largest;
}

}  // namespace

TopologyReport check(const Schedule& schedule, const ReportOptions& options) {
  constexpr double kUnitSum = 1e-6;
  TopologyReport report;
  report.size = schedule.size();
  report.period_steps = schedule.period_steps();
  report.steps_checked =
      std::min(report.period_steps, std::max<std::int64_t>(options.max_steps, 1));
  for (std::int64_t step = 0; step < report.steps_checked; ++step) {
    look_at_step(schedule.mixing_matrix(step), report);
  }
  if (report.steps_checked < report.period_steps) return report;
  const std::optional<MixingMatrix> product = product_of_period(schedule, options);
  if (!product) return report;
  report.product_residual = distance_from_mean(*product);
  if (report.row_error <= kUnitSum || report.column_error <= kUnitSum) {
    report.period_gap = spectral_gap(*product, options.gap);
  }
  return report;
}

TopologyReport check(const MixingMatrix& matrix, const ReportOptions& options) {
  return check(static_schedule(matrix), options);
}

}  // namespace bluefog::topology
