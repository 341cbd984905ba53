// Ranks may be lost, and others join: bfrun -np 2 --min-np 1 --respawn 3 ./elastic_training
#include <torch/torch.h>

#include <iostream>

#include "optimizers/bluefog.hpp"

namespace bf = bluefog::optimizers;

int main() {
  auto context = bluefog::Context::create();
  torch::manual_seed(0);
  const auto data = torch::randn({512, 2});
  torch::nn::Linear model(torch::nn::LinearOptions(2, 1).bias(false));
  bf::broadcast_parameters(*context, *model);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  bf::ElasticSampler sampler(data.size(0), *context);
  bf::DistributedOptimizerOptions options;
  options.when_shrunk = [&](const auto& now) { sampler.deal_anew(*now); };
  bf::DistributedOptimizer optimizer(context, sgd, *model, options);

  optimizer.join();  // a process that joins waits here to be taken in
  for (auto epoch = sampler.epoch(); epoch < 20; ++epoch) {
    sampler.begin(epoch);
    for (auto batch = sampler.next(32); !batch.empty(); batch = sampler.next(32)) {
      const auto x = data.index_select(0, torch::tensor(batch));
      optimizer.zero_grad();
      torch::mse_loss(model->forward(x), x.sum(1, true)).backward();
      optimizer.step();  // goes on without a rank that is lost, and takes in one that waits
    }
  }
  optimizer.finish();
  std::cout << "rank " << optimizer.context().rank() << ": " << model->weight.mean().item<float>()
            << '\n';
}
