#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "optimizers/parameter.hpp"

namespace torch::optim {
class Optimizer;
class OptimizerParamState;
}  // namespace torch::optim

namespace bluefog::optimizers {

/// The state that an optimizer keeps of each parameter, opened so that it can travel: numbers that
/// say what is there, and tensors.
class ParameterStates {
 public:
  /// The numbers of a parameter in a summary.
  static constexpr std::size_t kNumbers = 4;

  /// @param optimizer outlives this object. @param where the call, for messages.
  /// @throws UnsupportedError for optimizers other than SGD, Adam, AdamW, RMSprop, Adagrad,
  ///   `AccumAdam`, `AccumAdamW` and `Muon`.
  ParameterStates(torch::optim::Optimizer& optimizer, const std::string& where);

  /// "SGD".
  [[nodiscard]] const std::string& name() const noexcept { return kind_.name; }
  /// `kNumbers` a parameter: whether it has state, which of its tensors are there, its step, their
  /// dtypes.
  [[nodiscard]] std::vector<std::int64_t> summarize(
      const std::vector<at::Tensor>& parameters) const;
  /// Gives the state of these parameters the form that a summary tells of; returns its tensors.
  NamedTensors adopt(const std::vector<at::Tensor>& parameters,
                     const std::vector<std::int64_t>& summary);
  /// The parameter has no state any more.
  void forget(const at::Tensor& parameter);

 private:
  using State = torch::optim::OptimizerParamState;
  /// The numbers in one parameter's state.
  struct Fields {
    std::int64_t* step = nullptr;
    std::vector<at::Tensor*> tensors;
  };
  /// How to make and open the state of one kind of optimizer.
  struct Kind {
    std::string name;
    std::unique_ptr<State> (*make)() = nullptr;
    Fields (*open)(State&) = nullptr;
  };
  struct Kinds;

  torch::optim::Optimizer& optimizer_;
  Kind kind_;
};

}  // namespace bluefog::optimizers
