#include "optimizers/wrapper/newcomers.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <utility>
#include <vector>

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

Newcomers::Newcomers(const Membership& members, bool is_new)
    : count(static_cast<int>(
          std::ranges::count(members.joined, members.epoch, &Membership::Entry::epoch))),
      is_one(is_new) {}

void average_without(const Newcomers& newcomers, Context& context, const NamedTensors& tensors,
                     std::string_view call) {
  const torch::NoGradGuard no_grad;
  NamedTensors averaged;
  for (const NamedTensor& item : tensors) {
    if (item.tensor.is_floating_point()) {
      averaged.push_back(item);
      if (newcomers.is_one) {
        item.tensor.detach().zero_();
      }
    }
  }
  average_floating(context, averaged, call);
  if (newcomers.count > 0) {
    const double all = context.size();
    for (const NamedTensor& item : averaged) {
      item.tensor.detach().mul_(all / (all - newcomers.count));
    }
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
