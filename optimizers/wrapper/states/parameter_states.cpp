#include "optimizers/wrapper/states/parameter_states.hpp"

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <typeinfo>

#include "bluefog_cpp/error.hpp"
#include "optimizers/accum_adam.hpp"
#include "optimizers/muon.hpp"

namespace bluefog::optimizers {
namespace {

constexpr int kBitsOfDtype = 8;

at::ScalarType dtype_in(std::int64_t dtypes, std::size_t tensor) {
  constexpr std::int64_t kMask = (1 << kBitsOfDtype) - 1;
  return static_cast<at::ScalarType>((dtypes >> (tensor * kBitsOfDtype)) & kMask);
}

}  // namespace

struct ParameterStates::Kinds {
  template <typename Of>
  static std::unique_ptr<State> make() {
    return std::make_unique<Of>();
  }

  static Fields open_sgd(State& state) {
    auto& s = static_cast<torch::optim::SGDParamState&>(state);
    return {.step = nullptr, .tensors = {&s.momentum_buffer()}};
  }
  template <typename Of>
  static Fields open_adam(State& state) {
    auto& s = static_cast<Of&>(state);
    return {.step = &s.step(), .tensors = {&s.exp_avg(), &s.exp_avg_sq(), &s.max_exp_avg_sq()}};
  }
  static Fields open_rmsprop(State& state) {
    auto& s = static_cast<torch::optim::RMSpropParamState&>(state);
    return {.step = &s.step(), .tensors = {&s.square_avg(), &s.momentum_buffer(), &s.grad_avg()}};
  }
  static Fields open_adagrad(State& state) {
    auto& s = static_cast<torch::optim::AdagradParamState&>(state);
    return {.step = &s.step(), .tensors = {&s.sum()}};
  }
  static Fields open_accum_adam(State& state) {
    auto& s = static_cast<AccumAdamParamState&>(state);
    return {.step = &s.step, .tensors = {&s.exp_avg, &s.exp_avg_sq, &s.gradient_sum}};
  }
  static Fields open_muon(State& state) {
    auto& s = static_cast<MuonParamState&>(state);
    return {.step = nullptr, .tensors = {&s.momentum_buffer}};
  }

  static Kind of(const torch::optim::Optimizer& optimizer, const std::string& where) {
    using namespace torch::optim;  // NOLINT: ten names of it in five lines
    if (dynamic_cast<const SGD*>(&optimizer) != nullptr) {
      return {"SGD", make<SGDParamState>, open_sgd};
    }
    if (dynamic_cast<const AdamW*>(&optimizer) != nullptr) {
      return {"AdamW", make<AdamWParamState>, open_adam<AdamWParamState>};
    }
    if (dynamic_cast<const Adam*>(&optimizer) != nullptr) {
      return {"Adam", make<AdamParamState>, open_adam<AdamParamState>};
    }
    if (dynamic_cast<const RMSprop*>(&optimizer) != nullptr) {
      return {"RMSprop", make<RMSpropParamState>, open_rmsprop};
    }
    if (dynamic_cast<const Adagrad*>(&optimizer) != nullptr) {
      return {"Adagrad", make<AdagradParamState>, open_adagrad};
    }
    if (dynamic_cast<const AccumAdam*>(&optimizer) != nullptr) {
      const bool decouples = dynamic_cast<const AccumAdamW*>(&optimizer) != nullptr;
      return {decouples ? "AccumAdamW" : "AccumAdam", make<AccumAdamParamState>, open_accum_adam};
    }
    if (dynamic_cast<const Muon*>(&optimizer) != nullptr) {
      return {"Muon", make<MuonParamState>, open_muon};
    }
    throw UnsupportedError(fmt::format(
        "{}: expected SGD, Adam, AdamW, RMSprop, Adagrad, AccumAdam, AccumAdamW or Muon, found {}",
        where, c10::demangle(typeid(optimizer).name())));
  }
};

ParameterStates::ParameterStates(torch::optim::Optimizer& optimizer, const std::string& where)
    : optimizer_(optimizer), kind_(Kinds::of(optimizer, where)) {}

std::vector<std::int64_t> ParameterStates::summarize(
    const std::vector<at::Tensor>& parameters) const {
  std::vector<std::int64_t> summary;
  for (const at::Tensor& parameter : parameters) {
    const auto found = optimizer_.state().find(parameter.unsafeGetTensorImpl());
    std::int64_t present = 0;
    std::int64_t step = 0;
    std::int64_t dtypes = 0;
    if (found != optimizer_.state().end()) {
      const Fields fields = kind_.open(*found->second);
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
                   {found != optimizer_.state().end() ? 1 : 0, present, step, dtypes});
  }
  return summary;
}

NamedTensors ParameterStates::adopt(const std::vector<at::Tensor>& parameters,
                                    const std::vector<std::int64_t>& summary) {
  NamedTensors tensors;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::int64_t* const numbers = summary.data() + p * kNumbers;
    if (numbers[0] == 0) {
      forget(parameters[p]);
      continue;
    }
    auto& state = optimizer_.state()[parameters[p].unsafeGetTensorImpl()];
    if (!state) {
      state = kind_.make();
    }
    const Fields fields = kind_.open(*state);
    if (fields.step != nullptr) {
      *fields.step = numbers[2];
    }
    for (std::size_t i = 0; i < fields.tensors.size(); ++i) {
      at::Tensor& tensor = *fields.tensors[i];
      if (((numbers[1] >> i) & 1) == 0) {
        tensor.reset();
        continue;
      }
      const at::ScalarType dtype = dtype_in(numbers[3], i);
      if (!tensor.defined() || tensor.scalar_type() != dtype) {
        tensor = torch::zeros_like(parameters[p], dtype, torch::MemoryFormat::Preserve);
      }
      tensors.push_back({fmt::format("{} state {} of parameter {}", kind_.name, i, p), tensor});
    }
  }
  return tensors;
}

void ParameterStates::forget(const at::Tensor& parameter) {
  optimizer_.state().erase(parameter.unsafeGetTensorImpl());
}

}  // namespace bluefog::optimizers
