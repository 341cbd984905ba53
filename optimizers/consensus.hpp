#pragma once

#include "bluefog_cpp/context.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// Collective. The distance of the ranks' models from their mean x̄:
///
///     sqrt( (1/n) Σ_i ‖x_i − x̄‖² ),
///
/// with the norm over all floating-point elements of `parameters`, in float64. The same on every
/// rank; 0 when all models are equal. It is ‖X − JX‖ divided by √n, so that it compares across
/// numbers of ranks. Computed on the CPU, wherever parameters are. While averages may be
/// outstanding, call `DistributedOptimizer::finish` first.
/// Cost: one allreduce for each tensor, a copy of the largest in float64.
/// Source: arXiv 2102.04828.
[[nodiscard]] double consensus_distance(Context& context, const NamedTensors& parameters);
/// The same over the module's parameters, frozen ones included.
[[nodiscard]] double consensus_distance(Context& context, const torch::nn::Module& module);

}  // namespace bluefog::optimizers
