#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "bluefog_cpp/machine_layout.hpp"
#include "topology/ceca.hpp"
#include "topology/mixing_matrix.hpp"
#include "topology/schedule.hpp"
#include "topology/spectral_gap.hpp"

namespace bluefog::topology {

/// A row or column of W in one step of a schedule, and what it sums to.
struct StepSum {
  int rank = 0;           ///< the row or column
  double sum = 1.0;       ///< of its weights
  std::int64_t step = 0;  ///< the step, from 0
};

/// The effect of a topology or schedule on the values that are averaged, and its cost.
struct TopologyReport {
  int size = 0;                   ///< ranks
  std::int64_t period_steps = 1;  ///< steps after which the schedule repeats; 1 for a static one
  /// Steps that were looked at: the period, or as many as `ReportOptions` allow.
  std::int64_t steps_checked = 1;

  double row_error = 0.0;            ///< largest |Σ_j W(i, j) − 1| of any step
  double column_error = 0.0;         ///< largest |Σ_i W(i, j) − 1| of any step
  StepSum worst_row{};               ///< the first row that is furthest from 1
  StepSum worst_column{};            ///< the first column that is furthest from 1
  bool has_negative_weight = false;  ///< in any step

  int max_in_degree = 0;   ///< largest number of values that a rank receives in one step
  int max_out_degree = 0;  ///< largest number of values that a rank sends in one step
  /// The larger of the two: the degree that `step_time` takes.
  [[nodiscard]] int max_degree() const { return std::max(max_in_degree, max_out_degree); }

  /// Edges, over all steps, that only the sender's or only the receiver's plan has. Absent where
  /// the steps have more than `ReportOptions::max_edges` edges.
  std::optional<std::int64_t> edge_mismatches;

  /// Parts that the ranks fall into, if edges of all steps with a weight connect them in either
  /// direction. Several never agree. Absent where the period was cut, or the steps have more than
  /// `ReportOptions::max_edges` edges.
  std::optional<int> parts;
  int first_apart = -1;  ///< the lowest rank in another part than rank 0; −1 where there is none

  /// Messages from rank to rank in a step, all ranks together: their mean over the steps.
  double messages_per_step = 0.0;
  std::int64_t max_messages_per_step = 0;  ///< most of them in one step
  /// Bytes that a rank sends in a step: the mean over ranks and steps.
  double bytes_per_rank_per_step = 0.0;
  std::int64_t max_bytes_per_rank_per_step = 0;  ///< most of one rank in one step
  /// Bytes that go from one machine to another in a step, all together, the mean over the steps.
  /// Absent without a layout, or where the steps have more than `ReportOptions::max_edges` edges.
  std::optional<double> bytes_between_machines_per_step;

  /// Largest |P(i, j) − 1/n| of the period's product P; 0 is exact averaging.
  /// Absent where the product was too large to form or the period was cut.
  std::optional<double> period_residual;
  /// An estimate of the largest √(Σ_j (P(i, j) − 1/n)²) from random vectors, for a P that was too
  /// large to form. It is 0 up to rounding if P = J.
  std::optional<double> probed_residual;
  /// Gap of P, that of a whole period. Absent if P is, or if neither rows nor columns sum to 1. If
  /// n · period_residual ≤ 1e-9, it is 1 to within that product, by `GapMethod::Residual`.
  std::optional<SpectralGap> period_gap;
};

/// Limits of what a report is made from, and what its numbers are about.
struct ReportOptions {
  /// Most steps that are looked at; a longer period is cut.
  std::int64_t max_steps = 1000;
  /// Fewer steps are looked at where steps · ranks would exceed this.
  std::int64_t max_rank_steps = 10'000'000;
  /// Products with more entries than this are not formed.
  std::int64_t max_product_entries = 20'000'000;
  /// Edges are followed one by one up to this many.
  std::int64_t max_edges = 20'000'000;
  /// Random vectors where the product is not formed.
  int probes = 8;
  /// Bytes that a rank sends to one other.
  std::int64_t message_bytes = 1;
  /// The ranks that share a machine; without a layout nothing is said of machines.
  std::optional<MachineLayout> layout = std::nullopt;
  GapOptions gap = {};  ///< for the gap of a period
};

/// Looks at one period of a schedule.
/// @throws InvalidArgument if the layout is of another number of ranks, or `message_bytes` < 0.
/// Cost: O(edges of the period) and the product's; memory O(edges of a step) where the product is
///   too large to form.
[[nodiscard]] TopologyReport check(const Schedule& schedule, const ReportOptions& options = {});

/// The same for a static topology.
[[nodiscard]] TopologyReport check(const MixingMatrix& matrix, const ReportOptions& options = {});

/// The same for CECA: sums, degrees, messages and bytes are those of the traffic
/// (`Ceca::exchange`); the residual and the gap are those of the n × n matrix that turns the values
/// before a period into the d after it.
[[nodiscard]] TopologyReport check(const Ceca& ceca, const ReportOptions& options = {});

}  // namespace bluefog::topology
