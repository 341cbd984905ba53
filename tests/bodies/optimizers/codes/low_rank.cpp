// Means and averages of low rank: PowerSGD and PowerGossip.
#include "optimizers/algorithms/codes/low_rank.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/bodies/optimizers/codes/coded_runs.hpp"
#include "tests/support/error_of.hpp"
#include "topology/one_to_one.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

TEST(LowRank, FactorsAreOrthonormal) {
  const at::Tensor p = random({9, 4}, 1);
  p.select(1, 2).copy_(p.select(1, 0) - 2.0 * p.select(1, 1));  // no column of its own
  const at::Tensor span = p.clone();
  optimizers::orthonormalize(p);
  EXPECT_EQ(
      difference(p.t().mm(p), at::diag(torch::tensor({1.0, 1.0, 0.0, 1.0}, at::kDouble)), 1e-14),
      "");
  EXPECT_EQ(difference(p.mm(p.t().mm(span)), span, 1e-14), "");
  const at::Tensor opposite = -span;
  optimizers::orthonormalize(opposite);
  EXPECT_SAME(opposite, -p);
  const at::Tensor zeros = at::zeros({3, 2});
  optimizers::orthonormalize(zeros);
  EXPECT_SAME(zeros, at::zeros({3, 2}));
  const at::Tensor bad = at::full({3, 2}, std::nan(""));
  optimizers::orthonormalize(bad);
  EXPECT_TRUE(bad.isnan().all().item<bool>());
  const at::Tensor long_ones = at::full({3, 1}, 1e200, at::kDouble);  // their length is infinite
  optimizers::orthonormalize(long_ones);
  EXPECT_TRUE(long_ones.isnan().all().item<bool>());
}

TEST(LowRank, FactorsThatHaveNothingAreDrawn) {
  const at::Tensor one = at::zeros({5, 2}, at::kDouble);
  const at::Tensor other = at::full({5, 2}, std::nan(""), at::kDouble);
  optimizers::prepare_factor(one, 7);
  optimizers::prepare_factor(other, 7);
  EXPECT_SAME(one, other);
  EXPECT_EQ(difference(one.square().sum(0), at::ones({2}, at::kDouble), 1e-14), "");
  optimizers::prepare_factor(other, 8);  // those that have something stay
  EXPECT_EQ(difference(one, other, 1e-14), "");
}

/// A model of a matrix and a vector, whose loss has the gradients that are given.
struct LinearLoss {
  LinearLoss(Context& context, const DistributedOptimizerOptions& options, at::Tensor gradient)
      : matrix(bag.add("matrix", at::zeros({8, 6}, at::kDouble))),
        vector(bag.add("vector", at::zeros({3}, at::kDouble))),
        of_matrix(std::move(gradient)),
        of_vector(at::full({3}, 1.0 + context.rank(), at::kDouble)),
        sgd(bag.parameters(), 1.0),
        optimizer(context.shared_from_this(), sgd, bag, options) {}

  void step() {
    optimizer.zero_grad();
    ((of_matrix * matrix).sum() + (of_vector * vector).sum()).backward();
    optimizer.step();
  }

  Bag bag;
  at::Tensor matrix;
  at::Tensor vector;
  at::Tensor of_matrix;
  at::Tensor of_vector;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

at::Tensor mean_of(Context& context, const at::Tensor& own) {
  at::Tensor mean = own.clone();
  ops::allreduce(context, optimizers::view_of(mean));
  return mean;
}

at::Tensor product_of(std::int64_t rank, std::uint64_t seed) {
  return random({8, rank}, seed).mm(random({rank, 6}, seed + 1));
}

TEST(LowRank, MeansOfThatRankAreTheMeans) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const std::int64_t rank : {1, 2, 3}) {
      // Ranks have the columns in common: their mean is of that rank too.
      const at::Tensor own =
          random({8, rank}, 5)
              .mm(random({rank, 6}, 100 + static_cast<std::uint64_t>(context.rank())));
      const auto options =
          coded_options("gradient_allreduce", "", {{"low_rank", static_cast<double>(rank)}});
      LinearLoss loss(context, options, own);
      const at::Tensor mean = mean_of(context, own);
      for (int step = 1; step <= 3; ++step) {
        loss.step();
        EXPECT_EQ(difference(loss.matrix, -step * mean, 1e-9), "");
        EXPECT_CLOSE(loss.vector, at::full({3}, -step * (1.0 + mean_rank(context)), at::kDouble));
      }
    }
  });
}

/// Error feedback sends everything of a mean of higher rank in the end.
TEST(LowRank, MeansOfHigherRankComeByErrorFeedback) {
  on_ranks(some_ranks(), [](Context& context) {
    constexpr int kSteps = 60;
    const at::Tensor own = product_of(3, 200 + static_cast<std::uint64_t>(context.rank()));
    const at::Tensor mean = mean_of(context, own);
    const auto missing_with = [&](double error_feedback) {
      LinearLoss loss(context,
                      coded_options("gradient_allreduce", "",
                                    {{"low_rank", 1.0}, {"error_feedback", error_feedback}}),
                      own);
      for (int step = 0; step < kSteps; ++step) {
        loss.step();
      }
      return (loss.matrix + kSteps * mean).norm().item<double>() / mean.norm().item<double>();
    };
    EXPECT_LT(missing_with(1.0), 6.0);
    EXPECT_GT(missing_with(0.0), 12.0);
  });
}

/// The whole is sent or left, on all ranks together.
TEST(LowRank, MeansAndWhatIsLeftAreTheWhole) {
  on_ranks(some_ranks(), [](Context& context) {
    const at::Tensor own = product_of(4, 300 + static_cast<std::uint64_t>(context.rank()));
    const at::Tensor mean = mean_of(context, own);
    LinearLoss loss(context, coded_options("gradient_allreduce", "", {{"low_rank", 2.0}}), own);
    for (int step = 1; step <= 5; ++step) {
      loss.step();
      at::Tensor left;
      for (const auto& [name, tensor] : loss.optimizer.algorithm_state()) {
        left = name == "error of matrix" ? tensor : left;
      }
      ASSERT_TRUE(left.defined());
      EXPECT_EQ(difference(mean_of(context, left) - loss.matrix, step * mean, 1e-10), "");
    }
  });
}

TEST(LowRank, MeansOfWhatIsNotFiniteLeaveNoTrace) {
  on_ranks(some_ranks(2), [](Context& context) {
    const at::Tensor own = product_of(1, 5);
    LinearLoss loss(context, coded_options("gradient_allreduce", "", {{"low_rank", 1.0}}), own);
    if (context.rank() == 0) {
      loss.of_matrix = at::full({8, 6}, std::nan(""), at::kDouble);
    }
    loss.step();
    EXPECT_TRUE(loss.matrix.isnan().all().item<bool>());
    {
      const at::NoGradGuard no_grad;
      loss.matrix.zero_();
    }
    loss.of_matrix = own;
    loss.step();
    EXPECT_EQ(difference(loss.matrix, -own, 1e-9), "");
  });
}

// ---- PowerGossip

const Ranks kTwo{.at_least = 2, .at_most = 2, .thread_counts = {2}, .layouts = {Layout::OneHost}};

DistributedOptimizerOptions power_options(std::int64_t rank, const Schedule& schedule) {
  auto options = coded_options("power_gossip", "", {{"low_rank", static_cast<double>(rank)}});
  options.schedule = schedule;
  return options;
}

/// Rounds without local steps.
struct PowerGossipRun {
  PowerGossipRun(Context& context, const DistributedOptimizerOptions& options,
                 const at::Tensor& start)
      : matrix(bag.add("matrix", start.clone())),
        vector(bag.add("vector", at::full({3}, static_cast<double>(context.rank()), at::kDouble))),
        sgd(bag.parameters(), 0.0),
        optimizer(context.shared_from_this(), sgd, bag, options) {}

  void rounds(int count) {
    for (int round = 0; round < count; ++round) {
      optimizer.zero_grad();
      optimizer.step();
    }
  }

  Bag bag;
  at::Tensor matrix;
  at::Tensor vector;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

std::vector<Schedule> symmetric_schedules(int size) {
  std::vector<Schedule> schedules{topology::static_schedule(topology::ring(size)),
                                  topology::random_matching(size, 3)};
  return schedules;
}

TEST(PowerGossip, OfDifferencesOfThatRankIsTheAverage) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const Schedule& schedule : symmetric_schedules(context.size())) {
      // Differences of any two ranks are multiples of one product.
      const at::Tensor base = random({8, 6}, 1);
      const at::Tensor direction = product_of(1, 2);
      const auto start_of = [&](int rank) { return base + (rank + 1.0) * direction; };
      std::vector<at::Tensor> rows;
      for (int rank = 0; rank < context.size(); ++rank) {
        rows.push_back(start_of(rank).flatten());
      }
      at::Tensor all = at::stack(rows);
      PowerGossipRun run(context, power_options(1, schedule), start_of(context.rank()));
      for (int round = 0; round < 4; ++round) {
        run.rounds(1);
        all = dense(schedule.mixing_matrix(round)).mm(all);
        EXPECT_EQ(difference(run.matrix.flatten(), all[context.rank()], 1e-11), "");
      }
    }
  });
}

TEST(PowerGossip, ComesToAgreeOnTheMeanWhichStays) {
  const Ranks ranks{
      .at_least = 2, .at_most = 4, .thread_counts = {4}, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    for (const Schedule& schedule : symmetric_schedules(context.size())) {
      const at::Tensor own = random({8, 6}, 10 + static_cast<std::uint64_t>(context.rank()));
      const at::Tensor mean = mean_of(context, own);
      PowerGossipRun run(context, power_options(1, schedule), own);
      run.rounds(10);
      EXPECT_EQ(difference(mean_of(context, run.matrix.detach()), mean, 1e-13), "");
      run.rounds(400);
      EXPECT_EQ(difference(run.matrix, mean, 1e-6), "");
      EXPECT_EQ(difference(run.vector, at::full({3}, mean_rank(context), at::kDouble), 1e-6), "");
    }
  });
}

/// Ranks of an edge whose factors differ leave it alone for a round, and the mean stays.
TEST(PowerGossip, WithOtherFactorsOnARankBeginsAnew) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Schedule ring = topology::static_schedule(topology::ring(context.size()));
    const at::Tensor own = random({8, 6}, 10 + static_cast<std::uint64_t>(context.rank()));
    const at::Tensor mean = mean_of(context, own);
    PowerGossipRun run(context, power_options(1, ring), own);
    run.rounds(2);
    if (context.rank() == 0) {
      run.optimizer.restart();
    }
    const at::Tensor before = run.matrix.detach().clone();
    run.rounds(1);
    if (context.rank() == 0) {
      EXPECT_SAME(run.matrix, before);
    }
    EXPECT_EQ(difference(mean_of(context, run.matrix.detach()), mean, 1e-13), "");
    run.rounds(600);
    EXPECT_EQ(difference(run.matrix, mean, 1e-5), "");
  });
}

TEST(PowerGossip, WhatIsNotFiniteStaysSo) {
  on_ranks(kTwo, [](Context& context) {
    const Schedule all = topology::static_schedule(topology::fully_connected(2));
    const at::Tensor start =
        context.rank() == 0 ? at::full({8, 6}, std::nan(""), at::kDouble) : random({8, 6}, 10);
    PowerGossipRun run(context, power_options(1, all), start);
    run.rounds(1);
    EXPECT_TRUE(run.matrix.isnan().all().item<bool>());
    {
      const at::NoGradGuard no_grad;
      run.matrix.copy_(product_of(1, 3) * (1.0 + context.rank()));
    }
    run.rounds(2);
    EXPECT_EQ(difference(run.matrix, 1.5 * product_of(1, 3), 1e-11), "");
  });
}

TEST(PowerGossip, WhatItCannotTakeIsRefused) {
  on_ranks(some_ranks(3), [](Context& context) {
    const auto error_with = [&](const DistributedOptimizerOptions& options) {
      return error_of<Error>([&] {
        const PowerGossipRun run(context, options, at::zeros({8, 6}, at::kDouble));
      });
    };
    EXPECT_THAT(error_with(power_options(1, topology::static_schedule(topology::ring(
                                                context.size(), topology::RingStyle::Right)))),
                HasSubstr("power_gossip expects a symmetric W, because what a rank gets along an "
                          "edge the other one gives"));
    EXPECT_THAT(
        error_with(power_options(0, topology::static_schedule(topology::ring(context.size())))),
        HasSubstr("low_rank: expected from 1 to below 1025, found 0"));
    auto options = power_options(1, topology::static_schedule(topology::ring(context.size())));
    options.compression = ops::compression_named("int8");
    EXPECT_THAT(error_with(options), HasSubstr("found power_gossip, which sends values as they"));
    options.compression = nullptr;
    options.schedule.reset();
    options.plans = [&](std::int64_t /*round*/) {
      return topology::ring(context.size(), topology::RingStyle::Right).plan_for(context.rank());
    };
    PowerGossipRun run(context, options, at::zeros({8, 6}, at::kDouble));
    EXPECT_THAT(error_of<Error>([&] { run.rounds(1); }),
                HasSubstr("power_gossip expects a plan whose sources are its destinations"));
  });
}

/// The edges of a ring with weights that are not those of a symmetric W.
TEST(PowerGossip, PlansOfOtherWeightsAreRefused) {
  on_ranks(exactly(3), [](Context& context) {
    const auto error_with = [&](double own, double source, double reader) {
      auto options = power_options(1, topology::static_schedule(topology::ring(context.size())));
      options.schedule.reset();
      options.plans = [&context, own, source, reader](std::int64_t /*round*/) {
        NeighborPlan plan = topology::ring(context.size()).plan_for(context.rank());
        plan.self_weight = own;
        for (WeightedRank& each : plan.sources) {
          each.weight = source;
        }
        for (WeightedRank& each : plan.destinations) {
          each.weight = reader;
        }
        return plan;
      };
      PowerGossipRun run(context, options, at::zeros({8, 6}, at::kDouble));
      return error_of<Error>([&] { run.rounds(1); });
    };
    EXPECT_THAT(error_with(0.5, 0.5, 1.0), HasSubstr("whose weights sum to 1, found 1.5"));
    EXPECT_THAT(error_with(0.5, 0.25, 0.5), HasSubstr("sends with weight 1, found 0.5 to rank"));
    const double mine = context.rank() == 0 ? 0.25 : 0.125;
    EXPECT_THAT(error_with(1.0 - 2.0 * mine, mine, 1.0),
                HasSubstr("expected both ranks of an edge to give it one weight, found"));
  });
}

}  // namespace
}  // namespace bluefog::testing
