#include "examples/train_images/local_optimizer.hpp"

#include <torch/torch.h>

#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

namespace optim = torch::optim;

}  // namespace

const std::vector<std::string>& local_optimizer_names() {
  static const std::vector<std::string> kNames{"sgd", "adam", "adamw", "rmsprop", "adagrad"};
  return kNames;
}

std::unique_ptr<optim::Optimizer> make_local_optimizer(std::string_view name,
                                                       std::vector<at::Tensor> parameters,
                                                       const LocalOptimizerOptions& options) {
  const double rate = options.learning_rate;
  const double decay = options.weight_decay;
  if (name == "sgd") {
    return std::make_unique<optim::SGD>(
        std::move(parameters),
        optim::SGDOptions(rate).momentum(options.momentum).weight_decay(decay));
  }
  if (name == "adam") {
    return std::make_unique<optim::Adam>(std::move(parameters),
                                         optim::AdamOptions(rate).weight_decay(decay));
  }
  if (name == "adamw") {
    return std::make_unique<optim::AdamW>(std::move(parameters),
                                          optim::AdamWOptions(rate).weight_decay(decay));
  }
  if (name == "rmsprop") {
    return std::make_unique<optim::RMSprop>(
        std::move(parameters),
        optim::RMSpropOptions(rate).momentum(options.momentum).weight_decay(decay));
  }
  if (name == "adagrad") {
    return std::make_unique<optim::Adagrad>(std::move(parameters),
                                            optim::AdagradOptions(rate).weight_decay(decay));
  }
  std::string known;
  for (const std::string& one : local_optimizer_names()) {
    known += (known.empty() ? "" : ", ") + one;
  }
  throw InvalidArgument("make_local_optimizer: expected one of " + known + ", found '" +
                        std::string(name) + "'");
}

}  // namespace bluefog::examples
