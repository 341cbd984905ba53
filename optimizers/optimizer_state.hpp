#pragma once

#include "bluefog_cpp/context.hpp"

namespace torch::optim {
class Optimizer;
}

namespace bluefog::optimizers {

/// Collective. Every rank's optimizer gets `root`'s learning rates and state: moments, momentum,
/// step counts. State that only the root has is made, state that the root lacks is dropped, so that
/// ranks which have not stepped yet may join one that has. State has the root's dtypes everywhere.
///
/// Only numbers travel. All ranks have the same kind of optimizer over the same parameters.
/// Cost: two small broadcasts, and one for each tensor of state.
/// @throws UnsupportedError for optimizers other than SGD, Adam, AdamW, RMSprop, Adagrad,
///   `AccumAdam`, `AccumAdamW` and `Muon`, on every rank; InvalidArgument if `root` is not a rank; MismatchError if kinds or parameters
///   differ.
/// Source: BlueFog's `broadcast_optimizer_state`.
void broadcast_optimizer_state(Context& context, torch::optim::Optimizer& optimizer, int root = 0);

}  // namespace bluefog::optimizers
