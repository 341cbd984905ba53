// The ranks that a round averages over, when they change from step to step.
#include <gtest/gtest.h>

#include "bluefog_cpp/error.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::Averaging;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;

constexpr double kStep = 0.05;

DistributedOptimizerOptions options_of(AlgorithmName algorithm) {
  DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.bucket_bytes = 32;
  return options;
}

/// The mean of the points over all ranks, in every row.
at::Tensor meaned(const at::Tensor& points) { return points.mean(0, true).expand_as(points); }

TEST(Averaging, ChangesBetweenSteps) {
  on_ranks(some_ranks(), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    for (const AlgorithmName kind :
         {AlgorithmName::AdaptThenCombine, AlgorithmName::AdaptWithCombine}) {
      const Point point(static_cast<std::uint64_t>(context.rank()));
      torch::optim::SGD sgd(point.parameters(), kStep);
      DistributedOptimizerOptions options = options_of(kind);
      options.schedule = topology::static_schedule(topology::fully_connected(context.size()));
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      at::Tensor expected = starting_points(context.size(), Start::Different);
      const int machine_count = context.machines().machine_count();
      for (const Averaging averaging : {Averaging::Nobody, Averaging::Everybody, Averaging::Nobody,
                                        Averaging::Machines, Averaging::Neighbors}) {
        optimizer.set_averaging(averaging);
        if (averaging == Averaging::Machines) {
          optimizer.set_next_plan(topology::fully_connected(machine_count)
                                      .plan_for(context.machines().machine_of(context.rank())));
        }
        train(optimizer, point, problem);
        const at::Tensor step = kStep * gradients(expected);
        const bool averages = averaging != Averaging::Nobody;
        if (kind == AlgorithmName::AdaptThenCombine) {
          expected = averages ? meaned(expected - step) : expected - step;
        } else {
          // The neighbours' average is formed by `drain`, below.
          const bool is_at_once = averages && averaging != Averaging::Neighbors;
          expected = (is_at_once ? meaned(expected) : expected) - step;
        }
        EXPECT_CLOSE(point.x(), expected[context.rank()]);
      }
      optimizer.drain();
      EXPECT_CLOSE(point.x(), meaned(expected)[context.rank()]);
    }
  });
}

TEST(Averaging, BetweenMachinesNeedsAPlanForEachRound) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   options_of(AlgorithmName::AdaptThenCombine));
    optimizer.set_averaging(Averaging::Machines);
    EXPECT_THROW(optimizer.step(), StateError);
    optimizer.set_averaging(Averaging::Neighbors);
    optimizer.step();
  });
}

TEST(Averaging, IsTheAlgorithmsOwnElsewhere) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   options_of(AlgorithmName::GradientAllreduce));
    EXPECT_THROW(optimizer.set_averaging(Averaging::Everybody), StateError);
    optimizer.set_averaging(Averaging::Neighbors);
    EXPECT_THROW(optimizer.skip_steps(-1), InvalidArgument);
  });
}

TEST(Averaging, SkippedStepsLeaveOneForSeveralBackwardPasses) {
  on_ranks(some_ranks(), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizerOptions options = options_of(AlgorithmName::GradientAllreduce);
    options.num_steps_per_communication = 3;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    at::Tensor x = point.x().detach().clone();
    for (int round = 0; round < 2; ++round) {
      optimizer.zero_grad();
      problem.loss(point.x()).backward();
      problem.loss(point.x()).backward();
      optimizer.skip_steps(2);
      problem.loss(point.x()).backward();
      optimizer.step();
      x = x - kStep * 3 * gradients(x.expand({context.size(), -1})).mean(0);
      EXPECT_CLOSE(point.x(), x);
    }
    EXPECT_EQ(optimizer.round_count(), 2);
  });
}

}  // namespace
}  // namespace bluefog::testing
