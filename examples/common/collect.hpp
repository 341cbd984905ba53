#pragma once

#include <span>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"

namespace bluefog::examples {

/// The memory of `values` as an operation takes it; the caller keeps it alive.
[[nodiscard]] BufferView view_of(std::vector<double>& values);

/// Collective. Every rank's `value`, by rank.
[[nodiscard]] std::vector<double> collect(Context& context, double value);

/// Collective. The sum of every rank's `value`, the same bits on each.
[[nodiscard]] double sum_over_ranks(Context& context, double value);

/// Collective. The consensus distance ‖x − Jx‖ = √(Σ_i ‖x_i − x̄‖²), the same on every rank; x_i is
/// `values` on rank i and x̄ the mean over ranks.
/// @param values as many on all ranks.
/// Cost: an all-reduce of a copy of the values.
[[nodiscard]] double consensus_distance(Context& context, std::span<const double> values);

}  // namespace bluefog::examples
