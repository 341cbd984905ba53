// Ranks whose data differ: rank i wants x = i, and i + 1 times as much as rank 0. Gradient tracking
// comes to the minimiser of the mean, where averages of models alone stop beside it.
#include <torch/torch.h>

#include <iostream>

#include "optimizers/distributed_optimizer.hpp"

int main() {
  auto context = bluefog::Context::create();
  const double target = context->rank(), weight = 1 + context->rank();

  auto x = torch::zeros(1, torch::dtype(torch::kFloat64).requires_grad(true));
  torch::optim::SGD sgd({x}, 0.1);
  bluefog::optimizers::DistributedOptimizer optimizer(
      context, sgd, bluefog::optimizers::NamedTensors{{"x", x}},
      {.algorithm = bluefog::optimizers::AlgorithmName::GradientTracking});

  for (int step = 0; step < 400; ++step) {
    optimizer.zero_grad();
    (weight / 2 * (x - target).square()).backward();
    optimizer.step();
  }
  optimizer.finish();
  std::cout << "rank " << context->rank() << ": " << x.item<double>() << '\n';
}
