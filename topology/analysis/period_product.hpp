#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "topology/schedule.hpp"

/// What a whole period does to the values: the product P of its steps, first step first.
namespace bluefog::topology::detail {

/// P, or nothing where a product on the way could have more than `max_entries` entries.
[[nodiscard]] std::optional<MixingMatrix> product_of_period(const Schedule& schedule,
                                                            std::int64_t max_entries);

/// Largest |P(i, j) − 1/n|.
[[nodiscard]] double distance_from_mean(const MixingMatrix& product);

/// Puts the values of all ranks through step t of a period.
using StepOnValues = std::function<void(std::int64_t step, std::span<double> values)>;

/// Without P: `probes` vectors of drawn signs go through the period, and the root of the mean
/// square of what each rank has left of Px − Jx estimates √(Σ_j (P(i, j) − 1/n)²). The largest of
/// these over all ranks i is returned: 0 up to rounding if P = J, and otherwise, but for a chance
/// of 2^−probes at most, not. Memory: O(n · probes).
[[nodiscard]] double probe_distance(int size, std::int64_t period, int probes,
                                    const StepOnValues& step);

/// The same of a schedule; every matrix is made once.
[[nodiscard]] double probe_distance(const Schedule& schedule, int probes);

}  // namespace bluefog::topology::detail
