// Training in a program of somebody else: a context, a wrapped optimizer, one
// exact step of one rank.
#include <torch/torch.h>

#include <cstdio>

#include "optimizers/bluefog.hpp"

int main() {
  torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
  model->weight.data().fill_(2.0);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.5));

  auto context = bluefog::Context::create();
  bluefog::optimizers::DistributedOptimizer optimizer(context, sgd, *model);
  optimizer.zero_grad();
  model->forward(torch::ones({1, 1})).sum().backward();
  optimizer.step();
  optimizer.finish();

  const double weight = model->weight.item<double>();
  std::printf("weight after one step: %.2f, expected 1.50\n", weight);
  return weight == 1.5 ? 0 : 1;
}
