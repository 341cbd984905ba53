#include "optimizers/wrapper/newcomers.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "optimizers/checks/agreement.hpp"
#include "optimizers/optimizer_state.hpp"
#include "optimizers/parameter_collectives.hpp"

namespace bluefog::optimizers {
namespace {

/// Puts an optimizer's state and learning rates aside as long as it lives.
class StateAside {
 public:
  explicit StateAside(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
    std::swap(state_, optimizer_.state());
    for (const auto& group : optimizer_.param_groups()) {
      rates_.push_back(group.options().get_lr());
    }
  }
  ~StateAside() {
    std::swap(state_, optimizer_.state());
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      optimizer_.param_groups()[i].options().set_lr(rates_[i]);
    }
  }
  StateAside(const StateAside&) = delete;
  StateAside& operator=(const StateAside&) = delete;

 private:
  torch::optim::Optimizer& optimizer_;
  std::remove_reference_t<decltype(std::declval<torch::optim::Optimizer&>().state())> state_;
  std::vector<double> rates_;
};

}  // namespace

void average_without(const Newcomers& newcomers, Context& context, const NamedTensors& tensors,
                     std::string_view call) {
  if (newcomers.count == 0) {
    average_floating(context, tensors, call);
    return;
  }
  const torch::NoGradGuard no_grad;
  const double all = context.size();
  const double scale = all / (all - newcomers.count);
  for (const NamedTensor& item : tensors) {
    if (!item.tensor.is_floating_point()) {
      continue;
    }
    // Newcomers count as often as they are with a value of the others, which the scale takes out.
    const at::ScalarType dtype = item.tensor.scalar_type();
    const bool is_short = dtype == at::kHalf || dtype == at::kBFloat16;
    const at::Tensor own = item.tensor.detach().to(is_short ? at::kFloat : dtype, false, true);
    const at::Tensor base = own.clone();
    broadcast(context, {{item.name, base}}, 0, call);
    if (newcomers.is_one) {
      own.copy_(base);
    }
    average_floating(context, {{item.name, own}}, call);
    item.tensor.detach().copy_(base + (own - base) * scale);
  }
}

void give_newcomers(const Newcomers& newcomers, Context& context, const NamedTensors& tensors,
                    int root, std::string_view call) {
  NamedTensors sent = tensors;
  if (!newcomers.is_one) {
    for (NamedTensor& item : sent) {
      item.tensor = item.tensor.detach().clone();
    }
  }
  broadcast(context, sent, root, call);
}

void check_order(Context& context, const torch::optim::Optimizer& optimizer,
                 const NamedTensors& parameters, std::string_view call) {
  Statement statement;
  const auto& groups = optimizer.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::vector<at::Tensor>& listed = groups[group].params();
    for (std::size_t place = 0; place < listed.size(); ++place) {
      const auto named = std::ranges::find_if(parameters, [&](const NamedTensor& parameter) {
        return parameter.tensor.is_same(listed[place]);
      });
      statement.lines.push_back(
          fmt::format("optimizer: parameter {} of group {}, {}", place, group,
                      named != parameters.end() ? named->name : "which is not of the model"));
    }
  }
  check_ranks_agree(context, call, statement);
}

void give_newcomers_state(const Newcomers& newcomers, Context& context,
                          torch::optim::Optimizer& optimizer, int root) {
  if (newcomers.is_one || context.rank() == root) {
    broadcast_optimizer_state(context, optimizer, root);
    return;
  }
  const StateAside aside(optimizer);
  broadcast_optimizer_state(context, optimizer, root);
}

}  // namespace bluefog::optimizers
