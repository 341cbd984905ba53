// A step allocates nothing beyond the same step without communication.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/allocation_count.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;

TEST(Allocations, StepsThatAverageAllocateNoMoreThanStepsAlone) {
  const Ranks ranks{.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    constexpr std::array kKinds{AlgorithmName::None,
                                AlgorithmName::AdaptThenCombine,
                                AlgorithmName::AdaptWithCombine,
                                AlgorithmName::Extra,
                                AlgorithmName::ExactDiffusion,
                                AlgorithmName::D2,
                                AlgorithmName::GradientTracking,
                                AlgorithmName::PushSum,
                                AlgorithmName::DmSgd,
                                AlgorithmName::DecentLam,
                                AlgorithmName::QuasiGlobalMomentum,
                                AlgorithmName::WinPut,
                                AlgorithmName::PullGet,
                                AlgorithmName::AsyncPushSum};
    std::array<std::size_t, kKinds.size()> counts{};
    for (std::size_t k = 0; k < kKinds.size(); ++k) {
      torch::nn::Sequential model(torch::nn::Linear(20, 300), torch::nn::Linear(300, 5));
      torch::optim::SGD sgd(model->parameters(), 0.01);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, *model,
                                     {.algorithm = kKinds[k], .bucket_bytes = 8192});
      std::vector<std::size_t> of_steps;
      for (int step = 0; step < 21; ++step) {
        optimizer.zero_grad();
        model->forward(torch::ones({2, 20})).sum().backward();
        const std::size_t before = allocations_of_this_thread();
        optimizer.step();
        of_steps.push_back(allocations_of_this_thread() - before);
      }
      optimizer.finish();
      // Lists grow in the first steps, and a wait that becomes long records its calls.
      std::ranges::nth_element(of_steps, of_steps.begin() + 10);
      counts[k] = of_steps[10];
    }
    EXPECT_GT(counts[0], 0U) << "torch allocates in its own steps: the count is alive";
    for (std::size_t k = 1; k < kKinds.size(); ++k) {
      EXPECT_LE(counts[k], counts[0]) << name_of(kKinds[k]);
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
