#pragma once

#include "bluefog_cpp/context.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// Collective. How far the ranks' models are from their mean x̄:
///
///     sqrt( (1/n) Σ_i ‖x_i − x̄‖² ),
///
/// the norm over all floating-point elements of `parameters`, in float64. The same on every rank;
/// 0 when all models are equal. That is ‖X − JX‖ divided by √n, so that it compares across numbers
/// of ranks. Computed on the CPU, wherever parameters are. To be read after `DistributedOptimizer::finish` where averages may be outstanding.
/// Cost: one allreduce for each tensor, a copy of the largest in float64.
/// Source: arXiv 2102.04828.
[[nodiscard]] double consensus_distance(Context& context, const NamedTensors& parameters);
[[nodiscard]] double consensus_distance(Context& context, const torch::nn::Module& module);

}  // namespace bluefog::optimizers
