#pragma once

#include <vector>

#include "bluefog_cpp/context.hpp"
#include "optimizers/wrapper/states/parameter_states.hpp"
#include "pipeline/pipeline_layout.hpp"
#include "pipeline/runtime/layers.hpp"

namespace bluefog::pipeline {

/// Collective. Carries layers out: each move takes parameters, buffers and the optimizer's state of
/// them from one rank to the other, bit for bit. Senders keep what they have.
/// @param moves the same on all ranks, in the same order.
void transfer_layers(Context& context, const std::vector<LayerMove>& moves, Layers& layers,
                     optimizers::ParameterStates& states);

}  // namespace bluefog::pipeline
