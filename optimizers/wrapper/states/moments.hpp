#pragma once

#include <string>

#include "optimizers/options.hpp"

namespace torch::optim {
class Optimizer;
}

namespace bluefog::optimizers {

/// The moments that the wrapped optimizer keeps: `options.moments`, or those of torch's Adam and AdamW
/// and of `AccumAdam` and `AccumAdamW`; empty for others.
/// @param optimizer outlives what is returned.
[[nodiscard]] MomentsOf moments_of(const DistributedOptimizerOptions& options,
                                   const torch::optim::Optimizer& optimizer);

/// Why the optimizer has no moments, where the options ask for averages of them; empty otherwise.
[[nodiscard]] std::string why_no_moments(const DistributedOptimizerOptions& options,
                                         const torch::optim::Optimizer& optimizer);

}  // namespace bluefog::optimizers
