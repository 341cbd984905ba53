// What a step allocates beyond the same step without communication: nothing.
#include <gtest/gtest.h>

#include <array>

#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/allocation_count.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmKind;
using optimizers::DistributedOptimizer;

TEST(Allocations, StepsThatAverageAllocateNoMoreThanStepsAlone) {
  const Ranks ranks{.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    std::array<std::size_t, 3> counts{};
    constexpr std::array kKinds{AlgorithmKind::None, AlgorithmKind::AdaptThenCombine,
                                AlgorithmKind::AdaptWithCombine};
    for (std::size_t k = 0; k < kKinds.size(); ++k) {
      torch::nn::Sequential model(torch::nn::Linear(20, 300), torch::nn::Linear(300, 5));
      torch::optim::SGD sgd(model->parameters(), 0.01);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, *model,
                                     {.algorithm = kKinds[k], .bucket_bytes = 8192});
      for (int step = 0; step < 20; ++step) {
        optimizer.zero_grad();
        model->forward(torch::ones({2, 20})).sum().backward();
        const std::size_t before = allocations_of_this_thread();
        optimizer.step();
        counts[k] += step < 10 ? 0 : allocations_of_this_thread() - before;
      }
      optimizer.finish();
    }
    EXPECT_GT(counts[0], 0U) << "torch allocates in its own steps: the count is alive";
    // Ten steps of several buckets; a list may still grow once.
    constexpr std::size_t kGrowth = 3;
    EXPECT_LE(counts[1], counts[0] + kGrowth);
    EXPECT_LE(counts[2], counts[0] + kGrowth);
  });
}

}  // namespace
}  // namespace bluefog::testing
