#pragma once

#include <string>

#include "optimizers/options.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// True if the algorithm corrects its bias by what the same W did in the rounds before.
[[nodiscard]] bool needs_fixed_symmetric_mixing(AlgorithmKind kind) noexcept;

/// True if ranks hand out shares of a sum, so that columns have to sum to 1.
[[nodiscard]] bool hands_out_shares(AlgorithmKind kind) noexcept;

/// Why the algorithm cannot use the schedule's matrices, with what was expected and found; empty if
/// it can. Looks at the first 256 steps of a period. A function of its arguments alone.
[[nodiscard]] std::string why_unfit(AlgorithmKind kind, const Schedule& schedule);

/// The same for momentum of DecentLaM and QG-DSGDm, which carries differences between ranks on: they
/// have to die out by themselves (`growth_per_round`).
[[nodiscard]] std::string why_unfit_momentum(AlgorithmKind kind, double momentum,
                                             const Schedule& schedule);

}  // namespace bluefog::optimizers
