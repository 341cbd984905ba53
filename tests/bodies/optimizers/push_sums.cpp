// Push-sum on directed graphs of which only the columns sum to 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kPushRate = 0.05;

DistributedOptimizerOptions pushing(std::optional<Schedule> schedule) {
  DistributedOptimizerOptions options;
  options.algorithm = AlgorithmName::PushSum;
  options.schedule = std::move(schedule);
  options.bucket_bytes = 32;
  return options;
}

Schedule unbalanced_schedule(int size) {
  return topology::cycle({unbalanced_graph(size), topology::exponential(size)});
}

TEST(PushSum, FollowsItsEquation) {
  on_ranks([](Context& context) {
    const Schedule schedule = unbalanced_schedule(context.size());
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), kPushRate);
    DistributedOptimizerOptions options = pushing(schedule);
    options.num_steps_per_communication = 2;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    at::Tensor x = starting_points(context.size(), Start::Different);
    at::Tensor w = at::ones({context.size(), 1}, at::kDouble);
    for (int step = 0; step < 8; ++step) {
      train(optimizer, point, problem);
      x = x - kPushRate * gradients(x / w);
      if (step % 2 == 1) {
        const at::Tensor p = dense(schedule.mixing_matrix(step / 2));
        x = p.mm(x);
        w = p.mm(w);
      }
      EXPECT_CLOSE(point.x(), (x / w)[context.rank()]);
      for (const auto& [name, weight] : optimizer.algorithm_state()) {
        EXPECT_CLOSE(weight, w[context.rank()]) << name;
      }
    }
  });
}

TEST(PushSum, ReachesTheMeanOnAnUnbalancedGraphAndKeepsTheSumOfWeights) {
  on_ranks(some_ranks(3), [](Context& context) {
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), kPushRate);
    DistributedOptimizer optimizer(
        context.shared_from_this(), sgd, point,
        pushing(topology::static_schedule(unbalanced_graph(context.size()))));
    for (int step = 0; step < 100; ++step) {
      optimizer.step();  // no gradients: averaging alone
      for (const auto& [name, weight] : optimizer.algorithm_state()) {
        at::Tensor sum = weight.clone();
        ops::AllreduceOptions options;
        options.reduction = ops::Reduction::Sum;
        ops::allreduce(context, optimizers::view_of(sum), options);
        EXPECT_NEAR(sum.item<double>(), context.size(), 1e-12) << name;
      }
    }
    EXPECT_CLOSE(point.x(), starting_points(context.size(), Start::Different).mean(0));
    // The messages alone would not have reached the mean: their limit is the mean times w.
    at::Tensor bias = (optimizer.algorithm_state().front().tensor - 1.0).abs();
    ops::allreduce(context, optimizers::view_of(bias));
    EXPECT_GT(bias.item<double>(), 0.1);
  });
}

/// Each rank makes its plan by itself, as the sender knows it: the destinations' shares.
TEST(PushSum, TakesPlansThatTheSenderWeighs) {
  on_ranks(some_ranks(), [](Context& context) {
    const MixingMatrix matrix = unbalanced_graph(context.size());
    const Point point(static_cast<std::uint64_t>(context.rank()));
    const Point same(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), kPushRate);
    torch::optim::SGD same_sgd(same.parameters(), kPushRate);
    DistributedOptimizerOptions by_plans = pushing(std::nullopt);
    by_plans.plans = [&](std::int64_t /*round*/) {
      NeighborPlan plan = NeighborPlan::alone(context.rank(), context.size());
      for (const WeightedRank& entry : matrix.column(context.rank())) {
        if (entry.rank == context.rank()) {
          plan.self_weight = entry.weight;
        } else {
          plan.destinations.push_back(entry);
        }
      }
      for (const int source : matrix.in_neighbors(context.rank())) {
        plan.sources.push_back({source, 1.0});
      }
      return plan;
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, by_plans);
    DistributedOptimizer by_schedule(context.shared_from_this(), same_sgd, same,
                                     pushing(topology::static_schedule(matrix)));
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    for (int step = 0; step < 4; ++step) {
      train(optimizer, point, problem);
      train(by_schedule, same, problem);
    }
    EXPECT_CLOSE(point.x(), same.x());

    NeighborPlan keeps_too_much = by_plans.plans(0);
    keeps_too_much.self_weight += 0.25;
    try {
      optimizer.set_next_plan(keeps_too_much);
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("hands out all of what it has"));
      EXPECT_THAT(error.what(), HasSubstr("a sum of 1.25"));
    }
  });
}

TEST(PushSum, RestartsWithWeightsOfOne) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), kPushRate);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   pushing(unbalanced_schedule(context.size())));
    optimizer.step();
    const at::Tensor before = point.x().detach().clone();
    optimizer.restart();
    EXPECT_SAME(point.x(), before);
    for (const auto& [name, weight] : optimizer.algorithm_state()) {
      EXPECT_SAME(weight, at::ones({1}, at::kDouble)) << name;
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
