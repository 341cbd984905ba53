#pragma once

#include <string>

#include "optimizers/algorithm_row.hpp"
#include "optimizers/parameter.hpp"

namespace torch::optim {
class Optimizer;
}

namespace bluefog::optimizers {

/// The parameters of a model as a distributed optimizer sees them.
struct ModelParameters {
  /// In the order of the model: require gradients and belong to the optimizer.
  NamedTensors trained;
  /// Belong to the optimizer and do not require gradients.
  NamedTensors frozen;
};

/// Sorts `parameters` by what the optimizer does with them.
[[nodiscard]] ModelParameters sort_parameters(const NamedTensors& parameters,
                                              const torch::optim::Optimizer& optimizer);

/// Why the parameters cannot be trained, naming the first one at fault; empty if they can: one is
/// of an unsupported kind, two share memory, the optimizer has one that `parameters` lack, or none
/// is left.
[[nodiscard]] std::string why_untrainable(const NamedTensors& parameters,
                                          const ModelParameters& sorted,
                                          const torch::optim::Optimizer& optimizer);

/// Why an algorithm that brings momentum cannot step by the optimizer; empty if it can.
[[nodiscard]] std::string why_doubled_momentum(const AlgorithmRow& row,
                                               const torch::optim::Optimizer& optimizer);

}  // namespace bluefog::optimizers
