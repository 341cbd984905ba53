#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bluefog::examples {

/// The options of all optimizers; each reads those that it knows.
struct LocalOptimizerOptions {
  double learning_rate = 0.05;
  double momentum = 0.9;  ///< sgd and rmsprop
  double weight_decay = 0.0;
};

/// The names that `make_local_optimizer` knows.
[[nodiscard]] const std::vector<std::string>& local_optimizer_names();

/// The torch optimizer that a rank steps with.
/// @throws InvalidArgument if `name` is unknown; lists the known ones.
[[nodiscard]] std::unique_ptr<torch::optim::Optimizer> make_local_optimizer(
    std::string_view name, std::vector<at::Tensor> parameters,
    const LocalOptimizerOptions& options);

}  // namespace bluefog::examples
