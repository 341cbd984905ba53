#pragma once

#include <functional>

#include "topology/schedule.hpp"

namespace bluefog {

/// The W of a step, made from that of another schedule.
using StepChange = std::function<MixingMatrix(const MixingMatrix& step)>;

/// The schedule whose steps are `change` of those of `schedule`, among `size` ranks. Plans are
/// those of its matrices; the last matrix is kept for the plans of the other ranks.
[[nodiscard]] Schedule derived_schedule(Schedule schedule, int size, StepChange change);

}  // namespace bluefog
