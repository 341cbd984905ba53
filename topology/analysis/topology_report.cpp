#include "topology/topology_report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/analysis/gap_solvers.hpp"
#include "topology/analysis/period_product.hpp"
#include "topology/step_traffic.hpp"

namespace bluefog::topology {
namespace {

void check_report_options(int size, const ReportOptions& options) {
  if (options.layout && options.layout->size() != size) {
    throw InvalidArgument(fmt::format("topology report: a layout of {} ranks, expected {}",
                                      options.layout->size(), size));
  }
  if (options.message_bytes < 0) {
    throw InvalidArgument(fmt::format("topology report: messages of {} bytes, expected at least 0",
                                      options.message_bytes));
  }
}

std::int64_t steps_to_check(const Schedule& schedule, const ReportOptions& options) {
  const std::int64_t affordable = options.max_rank_steps / schedule.size();
  const std::int64_t limit = std::max<std::int64_t>(std::min(options.max_steps, affordable), 1);
  return std::min(schedule.period_steps(), limit);
}

/// Keeps the worst of `sums` in place of `worst` and `error`, its distance from 1.
void look_at_sums(const std::vector<double>& sums, std::int64_t step, StepSum& worst,
                  double& error) {
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    if (const double found = std::abs(sums[rank] - 1.0); found > error) {
      error = found;
      worst = {static_cast<int>(rank), sums[rank], step};
    }
  }
}

/// Ranks joined by edges, as they come.
class Parts {
 public:
  explicit Parts(int size) : parents_(static_cast<std::size_t>(size)) {
    std::iota(parents_.begin(), parents_.end(), 0);
  }

  void join(int one, int other) { parents_[root_of(one)] = static_cast<int>(root_of(other)); }

  void describe(TopologyReport& report) {
    int count = 0;
    for (int rank = 0; rank < std::ssize(parents_); ++rank) {
      count += parents_[static_cast<std::size_t>(rank)] == rank ? 1 : 0;
      if (report.first_apart < 0 && root_of(rank) != root_of(0)) {
        report.first_apart = rank;
      }
    }
    report.parts = count;
  }

 private:
  std::size_t root_of(int rank) {
    auto at = static_cast<std::size_t>(rank);
    while (parents_[at] != static_cast<int>(at)) {
      parents_[at] = parents_[static_cast<std::size_t>(parents_[at])];
      at = static_cast<std::size_t>(parents_[at]);
    }
    return at;
  }

  std::vector<int> parents_;
};

/// Adds up the steps, one after the other.
class Tally {
 public:
  Tally(const Schedule& schedule, const ReportOptions& options, TopologyReport& report)
      : schedule_(schedule), options_(options), report_(report), parts_(schedule.size()) {
    report_.edge_mismatches = 0;
  }

  void add(std::int64_t step) {
    const MixingMatrix matrix = schedule_.mixing_matrix(step);
    look_at_sums(matrix.row_sums(), step, report_.worst_row, report_.row_error);
    look_at_sums(matrix.column_sums(), step, report_.worst_column, report_.column_error);
    const detail::StepTraffic traffic = detail::traffic_of(matrix);
    report_.has_negative_weight |= traffic.has_negative_weight;
    report_.max_in_degree = std::max(report_.max_in_degree, traffic.max_in_degree);
    report_.max_out_degree = std::max(report_.max_out_degree, traffic.max_out_degree);
    report_.max_messages_per_step = std::max(report_.max_messages_per_step, traffic.messages);
    messages_ += traffic.messages;
    follow_edges(matrix, step);
  }

  void finish() {
    const auto steps = static_cast<double>(report_.steps_checked);
    const auto bytes = static_cast<double>(options_.message_bytes);
    report_.messages_per_step = static_cast<double>(messages_) / steps;
    report_.bytes_per_rank_per_step = report_.messages_per_step * bytes / report_.size;
    report_.max_bytes_per_rank_per_step = report_.max_out_degree * options_.message_bytes;
    if (options_.layout && report_.edge_mismatches) {
      report_.bytes_between_machines_per_step =
          static_cast<double>(between_machines_) / steps * bytes;
    }
    if (report_.edge_mismatches && report_.steps_checked == report_.period_steps) {
      parts_.describe(report_);
    }
  }

 private:
  void follow_edges(const MixingMatrix& matrix, std::int64_t step) {
    edges_ += matrix.entry_count();
    if (edges_ > options_.max_edges) {
      report_.edge_mismatches.reset();
    }
    if (!report_.edge_mismatches) {
      return;
    }
    *report_.edge_mismatches += detail::count_edge_mismatches(schedule_, step);
    for (int rank = 0; rank < matrix.size(); ++rank) {
      for (const WeightedRank& heard : matrix.row(rank)) {
        if (heard.weight != 0.0) {
          parts_.join(heard.rank, rank);
        }
      }
    }
    if (options_.layout) {
      between_machines_ += detail::messages_between_machines(matrix, *options_.layout);
    }
  }

  const Schedule& schedule_;
  const ReportOptions& options_;
  TopologyReport& report_;
  Parts parts_;
  std::int64_t edges_ = 0;
  std::int64_t messages_ = 0;
  std::int64_t between_machines_ = 0;
};

TopologyReport look_at_steps(const Schedule& schedule, const ReportOptions& options) {
  check_report_options(schedule.size(), options);
  TopologyReport report;
  report.size = schedule.size();
  report.period_steps = schedule.period_steps();
  report.steps_checked = steps_to_check(schedule, options);
  Tally tally(schedule, options, report);
  for (std::int64_t step = 0; step < report.steps_checked; ++step) {
    tally.add(step);
  }
  tally.finish();
  return report;
}

/// ‖P − J‖₂ and |λ₂| are at most n times the largest entry of P − J.
std::optional<SpectralGap> gap_of_average(int size, double residual) {
  constexpr double kNearlyNothing = 1e-9;
  const double error = size * residual;
  if (error > kNearlyNothing) {
    return std::nullopt;
  }
  const GapEstimate one = detail::converged_gap(0.0, error);
  return SpectralGap{.lambda2 = one, .norm = one, .method = GapMethod::Residual};
}

/// Largest |P(i, j) − 1/n| for the d-part of a period of CECA, one column at a time.
double residual_of(const Ceca& ceca) {
  const int size = ceca.size();
  double largest = 0.0;
  for (int column = 0; column < size; ++column) {
    std::vector<double> with_own(size, 0.0);
    std::vector<double> without_own(size, 0.0);
    with_own[column] = 1.0;
    for (int step = 0; step < std::ssize(ceca.steps()); ++step) {
      ceca.apply(step, with_own, without_own);
    }
    for (const double weight : with_own) {
      largest = std::max(largest, std::abs(weight - 1.0 / size));
    }
  }
  return largest;
}

double probe(const Ceca& ceca, int probes) {
  std::vector<double> without_own(ceca.size(), 0.0);
  return detail::probe_distance(ceca.size(), std::ssize(ceca.steps()), probes,
                                [&](std::int64_t step, std::span<double> values) {
                                  ceca.apply(static_cast<int>(step), values, without_own);
                                });
}

}  // namespace

TopologyReport check(const Schedule& schedule, const ReportOptions& options) {
  constexpr double kUnitSum = 1e-6;
  TopologyReport report = look_at_steps(schedule, options);
  if (report.steps_checked < report.period_steps) {
    return report;
  }
  const auto product = detail::product_of_period(schedule, options.max_product_entries);
  if (!product) {
    report.probed_residual = detail::probe_distance(schedule, options.probes);
    return report;
  }
  report.period_residual = detail::distance_from_mean(*product);
  if (report.row_error <= kUnitSum || report.column_error <= kUnitSum) {
    report.period_gap = gap_of_average(report.size, *report.period_residual);
    if (!report.period_gap) {
      report.period_gap = spectral_gap(*product, options.gap);
    }
  }
  return report;
}

TopologyReport check(const MixingMatrix& matrix, const ReportOptions& options) {
  return check(static_schedule(matrix), options);
}

TopologyReport check(const Ceca& ceca, const ReportOptions& options) {
  TopologyReport report = look_at_steps(ceca.exchange(), options);
  const std::int64_t entries = std::int64_t{ceca.size()} * ceca.size();
  if (entries > options.max_product_entries) {
    report.probed_residual = probe(ceca, options.probes);
    return report;
  }
  report.period_residual = residual_of(ceca);
  report.period_gap = gap_of_average(report.size, *report.period_residual);
  return report;
}

}  // namespace bluefog::topology
