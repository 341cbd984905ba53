#include "optimizers/optimizer_state.hpp"

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/parameter_collectives.hpp"

namespace bluefog::optimizers {
namespace {

namespace optim = torch::optim;
using ParamState = optim::OptimizerParamState;

/// The numbers in one parameter's state.
struct Fields {
  std::int64_t* step = nullptr;
  std::vector<at::Tensor*> tensors;
};

/// How to make and open the state of one kind of optimizer.
struct Kind {
  std::string name;
  std::unique_ptr<ParamState> (*make)() = nullptr;
  Fields (*open)(ParamState&) = nullptr;
};

template <typename State>
std::unique_ptr<ParamState> make_state() {
  return std::make_unique<State>();
}

Fields open_sgd(ParamState& state) {
  auto& s = static_cast<optim::SGDParamState&>(state);
  return {.step = nullptr, .tensors = {&s.momentum_buffer()}};
}

template <typename State>
Fields open_adam(ParamState& state) {
  auto& s = static_cast<State&>(state);
  return {.step = &s.step(), .tensors = {&s.exp_avg(), &s.exp_avg_sq(), &s.max_exp_avg_sq()}};
}

Fields open_rmsprop(ParamState& state) {
  auto& s = static_cast<optim::RMSpropParamState&>(state);
  return {.step = &s.step(), .tensors = {&s.square_avg(), &s.momentum_buffer(), &s.grad_avg()}};
}

Fields open_adagrad(ParamState& state) {
  auto& s = static_cast<optim::AdagradParamState&>(state);
  return {.step = &s.step(), .tensors = {&s.sum()}};
}

Kind kind_of(const Context& context, const optim::Optimizer& optimizer) {
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr) {
    return {"SGD", make_state<optim::SGDParamState>, open_sgd};
  }
  if (dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr) {
    return {"AdamW", make_state<optim::AdamWParamState>, open_adam<optim::AdamWParamState>};
  }
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr) {
    return {"Adam", make_state<optim::AdamParamState>, open_adam<optim::AdamParamState>};
  }
  if (dynamic_cast<const optim::RMSprop*>(&optimizer) != nullptr) {
    return {"RMSprop", make_state<optim::RMSpropParamState>, open_rmsprop};
  }
  if (dynamic_cast<const optim::Adagrad*>(&optimizer) != nullptr) {
    return {"Adagrad", make_state<optim::AdagradParamState>, open_adagrad};
  }
  throw UnsupportedError(fmt::format(
      "rank {}, broadcast_optimizer_state: expected SGD, Adam, AdamW, RMSprop or Adagrad, found {}",
      context.rank(), c10::demangle(typeid(optimizer).name())));
}

std::vector<at::Tensor> all_parameters(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

// Per parameter: whether it has state, which of its tensors are there, its step, their dtypes.
constexpr std::size_t kNumbers = 4;
constexpr int kBitsOfDtype = 8;

at::ScalarType dtype_of(std::int64_t dtypes, std::size_t tensor) {
  constexpr std::int64_t kMask = (1 << kBitsOfDtype) - 1;
  return static_cast<at::ScalarType>((dtypes >> (tensor * kBitsOfDtype)) & kMask);
}

std::vector<std::int64_t> summarize(const Kind& kind, optim::Optimizer& optimizer,
                                    const std::vector<at::Tensor>& parameters) {
  std::vector<std::int64_t> summary;
  for (const at::Tensor& parameter : parameters) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    std::int64_t present = 0;
    std::int64_t step = 0;
    std::int64_t dtypes = 0;
    if (found != optimizer.state().end()) {
      const Fields fields = kind.open(*found->second);
      for (std::size_t i = 0; i < fields.tensors.size(); ++i) {
        const at::Tensor& tensor = *fields.tensors[i];
        if (tensor.defined()) {
          present |= std::int64_t{1} << i;
          dtypes |= static_cast<std::int64_t>(tensor.scalar_type()) << (i * kBitsOfDtype);
        }
      }
      step = fields.step != nullptr ? *fields.step : 0;
    }
    summary.insert(summary.end(),
                   {found != optimizer.state().end() ? 1 : 0, present, step, dtypes});
  }
  return summary;
}

/// Gives this rank's state the form of the root's; returns its tensors.
NamedTensors adopt(const Kind& kind, optim::Optimizer& optimizer,
                   const std::vector<at::Tensor>& parameters,
                   const std::vector<std::int64_t>& summary) {
  NamedTensors tensors;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    void* const key = parameters[p].unsafeGetTensorImpl();
    const std::int64_t* const numbers = summary.data() + p * kNumbers;
    if (numbers[0] == 0) {
      optimizer.state().erase(key);
      continue;
    }
    auto& state = optimizer.state()[key];
    if (!state) {
      state = kind.make();
    }
    const Fields fields = kind.open(*state);
    if (fields.step != nullptr) {
      *fields.step = numbers[2];
    }
    for (std::size_t i = 0; i < fields.tensors.size(); ++i) {
      at::Tensor& tensor = *fields.tensors[i];
      if (((numbers[1] >> i) & 1) == 0) {
        tensor.reset();
      } else {
        const at::ScalarType dtype = dtype_of(numbers[3], i);
        if (!tensor.defined() || tensor.scalar_type() != dtype) {
          tensor = torch::zeros_like(parameters[p], dtype, torch::MemoryFormat::Preserve);
        }
        tensors.push_back({fmt::format("{} state {} of parameter {}", kind.name, i, p), tensor});
      }
    }
  }
  return tensors;
}

}  // namespace

void broadcast_optimizer_state(Context& context, optim::Optimizer& optimizer, int root) {
  const torch::NoGradGuard no_grad;
  const Kind kind = kind_of(context, optimizer);
  const std::vector<at::Tensor> parameters = all_parameters(optimizer);

  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  ops::broadcast(context,
                 {.data = rates.data(),
                  .count = static_cast<std::int64_t>(rates.size()),
                  .dtype = Dtype::Float64},
                 root, {.name = "broadcast_optimizer_state: learning rates of " + kind.name});
  for (std::size_t g = 0; g < rates.size(); ++g) {
    optimizer.param_groups()[g].options().set_lr(rates[g]);
  }

  std::vector<std::int64_t> summary = summarize(kind, optimizer, parameters);
  ops::broadcast(context,
                 {.data = summary.data(),
                  .count = static_cast<std::int64_t>(summary.size()),
                  .dtype = Dtype::Int64},
                 root, {.name = "broadcast_optimizer_state: state of " + kind.name});
  broadcast(context, adopt(kind, optimizer, parameters, summary), root,
            "broadcast_optimizer_state");
}

}  // namespace bluefog::optimizers
