#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <vector>

namespace bluefog::optimizers {

/// A step of an optimizer of torch's kind: evaluates the closure where there is one, then calls
/// `move(x, options)` for each parameter that has a gradient. @return the closure's loss.
template <class Options, class Move>
at::Tensor step_by(std::vector<torch::optim::OptimizerParamGroup>& groups,
                   torch::optim::Optimizer::LossClosure& closure, const Move& move) {
  const at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  for (auto& group : groups) {
    for (const at::Tensor& x : group.params()) {
      if (x.grad().defined()) {
        move(x, static_cast<const Options&>(group.options()));
      }
    }
  }
  return loss;
}

}  // namespace bluefog::optimizers
