#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "topology/schedule.hpp"

/// The product P of a period's steps, first step first: the effect of a whole period on the values.
namespace bluefog::topology::detail {

/// P, or nothing if a product on the way could have more than `max_entries` entries.
[[nodiscard]] std::optional<MixingMatrix> product_of_period(const Schedule& schedule,
                                                            std::int64_t max_entries);

/// Largest |P(i, j) − 1/n|.
[[nodiscard]] double distance_from_mean(const MixingMatrix& product);

/// A function that puts the values of all ranks through step t of a period.
using StepOnValues = std::function<void(std::int64_t step, std::span<double> values)>;

/// An estimate for when P is too large to form: `probes` vectors of random signs x go through the
/// period, and the root mean square of Px − Jx at rank i estimates √(Σ_j (P(i, j) − 1/n)²). The
/// largest estimate over all ranks is returned. It is 0 up to rounding if P = J; otherwise it is so
/// with a chance of 2^−probes at most. Memory: O(n · probes).
[[nodiscard]] double probe_distance(int size, std::int64_t period, int probes,
                                    const StepOnValues& step);

/// The same for a schedule; every matrix is made once.
[[nodiscard]] double probe_distance(const Schedule& schedule, int probes);

}  // namespace bluefog::topology::detail
