// Costs of a layer's passes, by which stages are divided.
#include "examples/train_pipeline/layer_costs.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/unit/examples/ranks_as_threads.hpp"

namespace bluefog::examples {
namespace {

constexpr std::chrono::milliseconds kPause(30);

/// A linear layer whose forward pass takes `kPause` and more.
struct SlowImpl : torch::nn::Module {
  SlowImpl() : linear(register_module("linear", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& values) {
    std::this_thread::sleep_for(kPause);
    return linear->forward(values);
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(Slow);

TEST(LayerCosts, AreWhatRankZerosPassesTake) {
  std::mutex mutex;
  std::vector<std::vector<double>> found;
  on_ranks(2, [&](Context& context) {
    torch::nn::Sequential model(torch::nn::Linear(4, 4), Slow(), torch::nn::Linear(4, 4),
                                torch::nn::Linear(4, 4));
    const std::vector<double> costs = measured_costs(context, model, at::ones({3, 4}));
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_FALSE(parameter.grad().defined() && parameter.grad().abs().max().item<double>() > 0);
    }
    const std::scoped_lock lock(mutex);
    found.push_back(costs);
  });
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], found[1]) << "the same on all ranks";
  const std::vector<double>& costs = found.front();
  ASSERT_EQ(costs.size(), 4U);
  for (const double cost : costs) {
    EXPECT_GT(cost, 0);
  }
  EXPECT_GE(costs[1], std::chrono::duration<double>(kPause).count());
}

}  // namespace
}  // namespace bluefog::examples
