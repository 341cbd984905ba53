#pragma once

#include <cstdint>

#include "topology/schedule.hpp"

namespace bluefog::examples {

/// ‖P − J‖₂ with P the product of the schedule's matrices over one period: the factor by which the
/// consensus distance shrinks in a period, at worst. It is 1 minus the spectral gap
/// 1 − ‖P − J‖₂ (`topology::spectral_gap`).
///
/// @throws UnsupportedError if that gap could not be found (very large, irregular graphs).
[[nodiscard]] double contraction_per_period(const Schedule& schedule);

/// The bound of the consensus distance after `steps` steps, for a distance of 1 at the start:
/// contraction^⌊steps / period⌋. A doubly stochastic step never increases the distance.
[[nodiscard]] double predicted_distance(double contraction, std::int64_t period_steps,
                                        std::int64_t steps);

}  // namespace bluefog::examples
