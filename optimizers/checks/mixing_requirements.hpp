#pragma once

#include <string>

#include "optimizers/algorithm_row.hpp"
#include "optimizers/checks/momentum_growth.hpp"
#include "optimizers/row_sums.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// Why the schedule's matrices are not what the row asks for (`MixingNeeds`), with what was
/// expected and found; empty if they are. Looks at the first 256 steps of a period. A function of
/// its arguments alone; the row's own check comes after it.
/// @param row_sums what the caller asks for.
[[nodiscard]] std::string why_unfit(const AlgorithmRow& row, const Schedule& schedule,
                                    RowSums row_sums = RowSums::One);

/// Why a plan for one round makes no average: its weights sum to another number than 1, or it
/// weighs what it sends, which its receivers cannot check. Empty if it makes one, or if the row's
/// algorithm does not average with rows.
[[nodiscard]] std::string why_no_average(const AlgorithmRow& row, const NeighborPlan& plan);

/// Why momentum of this recursion cannot go with the schedule: differences between ranks, which it
/// carries on, do not die out by themselves (`growth_per_round`). Empty if they do.
[[nodiscard]] std::string why_unfit_momentum(const AlgorithmName& algorithm,
                                             const MomentumRecursion& recursion,
                                             const Schedule& schedule);

}  // namespace bluefog::optimizers
