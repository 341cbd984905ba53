#include "optimizers/consensus.hpp"

#include <torch/torch.h>

#include <cmath>

#include "ops/collectives.hpp"

namespace bluefog::optimizers {

double consensus_distance(Context& context, const NamedTensors& parameters) {
  const torch::NoGradGuard no_grad;
  double squared = 0;
  for (const auto& [name, tensor] : parameters) {
    if (!why_not_averaged(tensor).empty()) {
      continue;
    }
    // The CPU serves all ranks: the device of a model is each rank's own matter.
    const at::Tensor own = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
    const at::Tensor mean = own.clone();
    ops::AllreduceOptions options;
    options.name = "consensus distance of " + name;
    ops::allreduce(context, view_of(mean), options);
    squared += (own - mean).square().sum().item<double>();
  }
  ops::AllreduceOptions options;
  options.name = "consensus distance";
  ops::allreduce(context, {.data = &squared, .count = 1, .dtype = Dtype::Float64}, options);
  return std::sqrt(squared);
}

double consensus_distance(Context& context, const torch::nn::Module& module) {
  return consensus_distance(context, named_parameters(module));
}

}  // namespace bluefog::optimizers
