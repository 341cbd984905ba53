// A step allocates nothing beyond the same step without communication.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/allocation_count.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;

/// The median over steps of this thread's allocations in `step`: lists grow in the first ones, and a
/// wait that becomes long records its calls.
std::size_t allocations_of_a_step(Context& context, const AlgorithmName& algorithm,
                                  std::optional<Schedule> schedule = std::nullopt) {
  torch::nn::Sequential model(torch::nn::Linear(20, 300), torch::nn::Linear(300, 5));
  torch::optim::SGD sgd(model->parameters(), 0.01);
  DistributedOptimizer optimizer(
      context.shared_from_this(), sgd, *model,
      {.algorithm = algorithm, .schedule = std::move(schedule), .bucket_bytes = 8192});
  std::vector<std::size_t> of_steps;
  for (int step = 0; step < 21; ++step) {
    optimizer.zero_grad();
    model->forward(torch::ones({2, 20})).sum().backward();
    const std::size_t before = allocations_of_this_thread();
    optimizer.step();
    of_steps.push_back(allocations_of_this_thread() - before);
  }
  optimizer.finish();
  std::ranges::nth_element(of_steps, of_steps.begin() + 10);
  return of_steps[10];
}

const Ranks kFewRanks{.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}};

TEST(Allocations, StepsThatAverageAllocateNoMoreThanStepsAlone) {
  on_ranks(kFewRanks, [](Context& context) {
    const std::size_t alone = allocations_of_a_step(context, AlgorithmName::None);
    EXPECT_GT(alone, 0U) << "torch allocates in its own steps: the count is alive";
    for (const AlgorithmName algorithm :
         {AlgorithmName::AdaptThenCombine, AlgorithmName::AdaptWithCombine, AlgorithmName::Extra,
          AlgorithmName::ExactDiffusion, AlgorithmName::D2, AlgorithmName::GradientTracking,
          AlgorithmName::PushSum, AlgorithmName::DmSgd, AlgorithmName::DecentLam,
          AlgorithmName::QuasiGlobalMomentum, AlgorithmName::WinPut, AlgorithmName::PullGet,
          AlgorithmName::AsyncPushSum}) {
      EXPECT_LE(allocations_of_a_step(context, algorithm), alone) << name_of(algorithm);
    }
  });
}

/// Gradient all-reduce can take a code, and has none.
TEST(Allocations, StepsWithoutACodeAllocateNoMoreThanStepsAlone) {
  on_ranks(kFewRanks, [](Context& context) {
    const std::size_t alone = allocations_of_a_step(context, AlgorithmName::None);
    const Schedule ring = topology::static_schedule(topology::ring(context.size()));
    EXPECT_LE(allocations_of_a_step(context, AlgorithmName::GradientAllreduce), alone);
    EXPECT_GT(allocations_of_a_step(context, "choco", ring), alone) << "a code has its memory";
  });
}

}  // namespace
}  // namespace bluefog::testing
