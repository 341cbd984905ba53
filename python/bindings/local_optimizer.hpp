#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torch/optim/optimizer.h>

#include <vector>

namespace bluefog::python {

/// A Python optimizer as the local step of an algorithm: an optimizer of LibTorch that holds the
/// same parameters in the same groups and has Python step those that are asked for.
class LocalOptimizer final : public torch::optim::Optimizer {
 public:
  /// @param step is called with one list of parameters for each group, and holds no options:
  /// Python's
  ///   optimizer does.
  LocalOptimizer(const std::vector<std::vector<at::Tensor>>& groups, py::function step);
  LocalOptimizer(const LocalOptimizer&) = delete;
  LocalOptimizer& operator=(const LocalOptimizer&) = delete;
  ~LocalOptimizer() override;

  /// Any thread without the interpreter's lock.
  /// @throws py::error_already_set
  at::Tensor step(LossClosure closure = nullptr) override;

 private:
  py::function step_;
};

}  // namespace bluefog::python
