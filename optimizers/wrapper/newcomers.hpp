#pragma once

#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "optimizers/parameter.hpp"

namespace torch::optim {
class Optimizer;
}

namespace bluefog::optimizers {

/// The ranks of a group that have nothing of what the others have yet.
struct Newcomers {
  int count = 0;
  bool is_one = false;  ///< this rank
};

/// Collective: `average_floating` over the ranks that are no newcomers, whose mean these get. Where
/// the others have the same value it stays as it is, to the bit. A tensor changes when its mean is
/// there.
void average_without(const Newcomers& newcomers, Context& context, const NamedTensors& tensors,
                     std::string_view call);

/// Collective: newcomers get the tensors of `root`; the others keep their own.
void give_newcomers(const Newcomers& newcomers, Context& context, const NamedTensors& tensors,
                    int root, std::string_view call);

/// Collective. Compares the order of parameters, by which an optimizer's state goes.
/// @throws MismatchError where ranks list others, or in another order.
void check_order(Context& context, const torch::optim::Optimizer& optimizer,
                 const NamedTensors& parameters, std::string_view call);

/// Collective: newcomers get the learning rates and the state of `root`; the others keep their own.
/// @throws UnsupportedError as `broadcast_optimizer_state`.
void give_newcomers_state(const Newcomers& newcomers, Context& context,
                          torch::optim::Optimizer& optimizer, int root);

}  // namespace bluefog::optimizers
