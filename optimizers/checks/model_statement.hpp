#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optimizers/checks/agreement.hpp"
#include "optimizers/checks/model_check.hpp"
#include "optimizers/options.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// The options, first rounds of the schedule and parameters that all ranks of a distributed
/// optimizer have in common. Its problem is that of a schedule which cannot make its rounds.
[[nodiscard]] Statement statement_of(const ModelParameters& parameters,
                                     const DistributedOptimizerOptions& options,
                                     std::int64_t bucket_bytes);

/// Rounds of a schedule that `statement_of` has: those of a period, up to 1,024 of them and 65,536 rows;
/// where it is longer, the first 64.
[[nodiscard]] std::int64_t compared_rounds(const Schedule& schedule);

/// The comparison of `count` rounds from `first` on: lines with each rank's part of the first of
/// them, and with digests of the others.
/// @throws what the schedule throws.
[[nodiscard]] std::vector<std::string> round_lines(const Schedule& schedule, std::int64_t first,
                                                   std::int64_t count);

}  // namespace bluefog::optimizers
