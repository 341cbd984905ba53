#pragma once

#include <cstdint>

#include "optimizers/checks/agreement.hpp"
#include "optimizers/checks/model_check.hpp"
#include "optimizers/options.hpp"

namespace bluefog::optimizers {

/// The options, first rounds of the schedule and parameters that all ranks of a distributed
/// optimizer have in common. Its problem is that of a schedule which cannot make its rounds.
[[nodiscard]] Statement statement_of(const ModelParameters& parameters,
                                     const DistributedOptimizerOptions& options,
                                     std::int64_t bucket_bytes);

}  // namespace bluefog::optimizers
