// Training that goes on where another run stopped, bit for bit: each rank has a file of its own.
#include "optimizers/checkpoint.hpp"

#include <torch/torch.h>

#include <iostream>

namespace {

struct Training {
  explicit Training(const std::shared_ptr<bluefog::Context>& context)
      : sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        optimizer(context, sgd, *model) {}

  void make_steps(int first, int last) {
    for (int step = first; step < last; ++step) {
      torch::manual_seed(100 * step + optimizer.context().rank());
      const auto x = torch::randn({32, 2});
      optimizer.zero_grad();
      torch::mse_loss(model->forward(x), x.sum(1, true)).backward();
      optimizer.step();
    }
  }

  torch::nn::Linear model{2, 1};
  torch::optim::SGD sgd;
  bluefog::optimizers::DistributedOptimizer optimizer;
};

}  // namespace

int main() {
  auto context = bluefog::Context::create();
  torch::manual_seed(0);
  Training whole(context);
  whole.make_steps(0, 3);
  bluefog::optimizers::save_checkpoint("checkpoint", *whole.model, whole.optimizer);
  whole.make_steps(3, 6);

  Training resumed(context);  // as in another process
  const auto found =
      bluefog::optimizers::load_checkpoint("checkpoint", *resumed.model, resumed.optimizer);
  resumed.make_steps(static_cast<int>(found.step_count), 6);
  std::cout << "rank " << context->rank() << ": resumed after step " << found.step_count << ", "
            << (resumed.model->weight.equal(whole.model->weight) ? "the same" : "other")
            << " weights\n";
}
