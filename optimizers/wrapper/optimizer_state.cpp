#include "optimizers/optimizer_state.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "ops/collectives.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "optimizers/wrapper/states/parameter_states.hpp"

namespace bluefog::optimizers {
namespace {

namespace optim = torch::optim;

std::vector<at::Tensor> all_parameters(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

}  // namespace

void broadcast_optimizer_state(Context& context, optim::Optimizer& optimizer, int root) {
  const torch::NoGradGuard no_grad;
  ParameterStates states(optimizer,
                         fmt::format("rank {}, broadcast_optimizer_state", context.rank()));
  const std::vector<at::Tensor> parameters = all_parameters(optimizer);

  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  ops::broadcast(context,
                 {.data = rates.data(),
                  .count = static_cast<std::int64_t>(rates.size()),
                  .dtype = Dtype::Float64},
                 root, {.name = "broadcast_optimizer_state: learning rates of " + states.name()});
  for (std::size_t g = 0; g < rates.size(); ++g) {
    optimizer.param_groups()[g].options().set_lr(rates[g]);
  }

  std::vector<std::int64_t> summary = states.summarize(parameters);
  ops::broadcast(context,
                 {.data = summary.data(),
                  .count = static_cast<std::int64_t>(summary.size()),
                  .dtype = Dtype::Int64},
                 root, {.name = "broadcast_optimizer_state: state of " + states.name()});
  broadcast(context, states.adopt(parameters, summary), root, "broadcast_optimizer_state");
}

}  // namespace bluefog::optimizers
