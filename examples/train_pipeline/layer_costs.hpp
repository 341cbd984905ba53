#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <vector>

#include "bluefog_cpp/context.hpp"

namespace bluefog::examples {

/// Collective. Seconds of each layer's forward and backward pass over `inputs`, the least of some,
/// as rank 0 has measured them, by which a pipeline's stages can be divided. Gradients are cleared
/// afterwards. @param inputs of the model, on rank 0.
[[nodiscard]] std::vector<double> measured_costs(Context& context, torch::nn::Sequential& model,
                                                 const at::Tensor& inputs);

}  // namespace bluefog::examples
