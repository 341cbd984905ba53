#pragma once

#include <cstdint>
#include <optional>

#include "topology/mixing_matrix.hpp"
#include "topology/schedule.hpp"
#include "topology/spectral_gap.hpp"

namespace bluefog::topology {

/// What a topology or schedule does to the values that are averaged.
struct TopologyReport {
  int size = 0;
  std::int64_t period_steps = 1;
  /// Steps that were looked at: the period, or `ReportOptions::max_steps`.
  std::int64_t steps_checked = 1;

  /// Largest |Σ_j W(i, j) − 1| and |Σ_i W(i, j) − 1| of any step.
  double row_error = 0.0;
  double column_error = 0.0;
  bool has_negative_weight = false;

  /// Largest number of values that a rank receives and sends in one step.
  int max_in_degree = 0;
  int max_out_degree = 0;

  /// Largest |P(i, j) − 1/n| of the period's product P; 0 is exact averaging.
  /// Absent where the product was too large to form or the period was cut.
  std::optional<double> product_residual;
  /// Gap of P, so over a whole period; absent where P is, or where neither
  /// rows nor columns sum to 1.
  std::optional<SpectralGap> period_gap;
};

struct ReportOptions {
  std::int64_t max_steps = 1000;
  /// Products with more entries than this are not formed.
  std::int64_t max_product_entries = 20'000'000;
  GapOptions gap = {};
};

[[nodiscard]] TopologyReport check(const Schedule& schedule, const ReportOptions& options = {});

/// The same of a static topology.
[[nodiscard]] TopologyReport check(const MixingMatrix& matrix, const ReportOptions& options = {});

}  // namespace bluefog::topology
