// Gossip-PGA and local SGD: global averages every H steps.
#include <gtest/gtest.h>

#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizerOptions;

constexpr double kPeriodicRate = 0.05;
constexpr int kPeriodicSteps = 7;

std::vector<at::Tensor> trajectory(Context& context, const DistributedOptimizerOptions& options,
                                   Start start = Start::Equal) {
  return points_of_run(context, options, start, kPeriodicSteps, kPeriodicRate);
}

DistributedOptimizerOptions gossip(std::int64_t period, std::optional<Schedule> schedule) {
  return {.algorithm = AlgorithmName::GossipPga,
          .schedule = std::move(schedule),
          .global_period_rounds = period,
          .bucket_bytes = 32};
}

TEST(GossipPga, FollowsItsEquation) {
  on_ranks([](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    const auto found = trajectory(context, gossip(3, schedule), Start::Different);
    at::Tensor x = starting_points(context.size(), Start::Different);
    for (int step = 0; step < kPeriodicSteps; ++step) {
      const bool is_global = step % 3 == 2;
      const at::Tensor w = dense(is_global ? topology::fully_connected(context.size())
                                           : schedule.mixing_matrix(step));
      x = w.mm(x - kPeriodicRate * gradients(x));
      EXPECT_CLOSE(found[static_cast<std::size_t>(step)], x[context.rank()]);
    }
  });
}

TEST(GossipPga, WithPeriodOneIsParallelSgd) {
  on_ranks(some_ranks(), [](Context& context) {
    const auto found = trajectory(context, gossip(1, std::nullopt));
    const auto parallel = trajectory(context, {.algorithm = AlgorithmName::GradientAllreduce});
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_CLOSE(found[step], parallel[step]);
    }
  });
}

TEST(GossipPga, WithoutNeighboursIsLocalSgdAndWithoutPeriodAdaptThenCombine) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule nobody = topology::static_schedule(MixingMatrix::identity(context.size()));
    const auto alone = trajectory(context, gossip(3, nobody));
    const auto local = trajectory(context, {.algorithm = AlgorithmName::LocalSgd,
                                            .num_steps_per_communication = 3,
                                            .bucket_bytes = 32});
    const auto endless = trajectory(context, gossip(kPeriodicSteps + 1, std::nullopt));
    const auto diffusion = trajectory(context, {.bucket_bytes = 32});
    for (std::size_t step = 0; step < alone.size(); ++step) {
      EXPECT_SAME(alone[step], local[step]);
      EXPECT_SAME(endless[step], diffusion[step]);
    }
  });
}

TEST(LocalSgd, FollowsItsEquation) {
  on_ranks([](Context& context) {
    const auto found = trajectory(context,
                                  {.algorithm = AlgorithmName::LocalSgd,
                                   .num_steps_per_communication = 3,
                                   .bucket_bytes = 32},
                                  Start::Different);
    const at::Tensor mean = dense(topology::fully_connected(context.size()));
    at::Tensor x = starting_points(context.size(), Start::Different);
    for (int step = 0; step < kPeriodicSteps; ++step) {
      x = x - kPeriodicRate * gradients(x);
      x = step % 3 == 2 ? mean.mm(x) : x;
      EXPECT_CLOSE(found[static_cast<std::size_t>(step)], x[context.rank()]);
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
