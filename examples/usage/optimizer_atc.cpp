// Three lines make a training loop decentralized: a context, a broadcast, a wrapped optimizer.
#include <torch/torch.h>

#include <iostream>

#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/parameter_collectives.hpp"

int main() {
  auto context = bluefog::Context::create();
  torch::nn::Linear model(torch::nn::LinearOptions(2, 1).bias(false));
  bluefog::optimizers::broadcast_parameters(*context, *model);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  // The default: adapt, then combine, over the exponential graph.
  bluefog::optimizers::DistributedOptimizer optimizer(context, sgd, *model);

  torch::manual_seed(context->rank());  // each rank has data of its own
  for (int step = 0; step < 200; ++step) {
    const auto x = torch::randn({32, 2});
    optimizer.zero_grad();
    torch::mse_loss(model->forward(x), x.sum(1, true)).backward();
    optimizer.step();
  }
  optimizer.finish();
  std::cout << "rank " << context->rank() << ": " << model->weight.mean().item<float>() << '\n';
}
