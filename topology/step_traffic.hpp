#pragma once

#include <cstdint>
#include <optional>

#include "bluefog_cpp/machine_layout.hpp"
#include "topology/schedule.hpp"

namespace bluefog::topology::detail {

/// The messages of one step.
struct StepTraffic {
  /// Values that travel from one rank to another, each counted once.
  std::int64_t messages = 0;
  int max_in_degree = 0;
  int max_out_degree = 0;
  bool has_negative_weight = false;
};

/// Cost: O(entries), or O(entries of one row) where all rows are shifts of each other.
[[nodiscard]] StepTraffic traffic_of(const MixingMatrix& matrix);

/// The messages that leave a machine. Cost: O(entries).
/// @param layout of matrix.size() ranks.
[[nodiscard]] std::int64_t messages_between_machines(const MixingMatrix& matrix,
                                                     const MachineLayout& layout);

/// Edges of a step that only the sender's or only the receiver's plan has.
/// Cost: O(edges log edges).
[[nodiscard]] std::int64_t count_edge_mismatches(const Schedule& schedule, std::int64_t step);

}  // namespace bluefog::topology::detail
