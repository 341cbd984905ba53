// When ranks communicate, with whom, and what happens when they disagree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::BufferPolicy;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr double kStep = 0.05;

DistributedOptimizerOptions every(AlgorithmName algorithm, std::int64_t steps) {
  DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.num_steps_per_communication = steps;
  options.bucket_bytes = 32;
  return options;
}

TEST(Rounds, EveryThirdStepCommunicatesWithTheSchedulesNextPlan) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    for (const AlgorithmName kind :
         {AlgorithmName::AdaptThenCombine, AlgorithmName::AdaptWithCombine}) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), kStep);
      DistributedOptimizerOptions options = every(kind, 3);
      options.schedule = schedule;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      at::Tensor expected = starting_points(context.size(), Start::Equal);
      at::Tensor published = at::eye(context.size(), at::kDouble);
      for (int step = 0; step < 9; ++step) {
        train(optimizer, point, problem);
        const bool communicates = step % 3 == 2;
        const at::Tensor w = dense(schedule.mixing_matrix(step / 3));
        const at::Tensor direction = kStep * gradients(expected);
        if (kind == AlgorithmName::AdaptThenCombine) {
          expected = communicates ? w.mm(expected - direction) : expected - direction;
        } else {
          expected = published.mm(expected) - direction;
          published = communicates ? w : at::eye(context.size(), at::kDouble);
        }
        EXPECT_CLOSE(point.x(), expected[context.rank()]);
      }
      EXPECT_EQ(optimizer.step_count(), 9);
      EXPECT_EQ(optimizer.round_count(), 3);
    }
  });
}

TEST(Rounds, GradientAllreduceAddsUpGradients) {
  on_ranks(some_ranks(), [](Context& context) {
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   every(AlgorithmName::GradientAllreduce, 2));
    at::Tensor x = point.x().detach().clone();
    for (int step = 0; step < 4; ++step) {
      train(optimizer, point, problem);
      if (step % 2 == 1) {
        x = x - kStep * 2 * gradients(x.expand({context.size(), -1})).mean(0);
      }
      EXPECT_CLOSE(point.x(), x);
    }
  });
}

// A failure reaches only some of the other ranks if rounds have one peer.
TEST(Rounds, AFailedRoundCountsOnAllRanks) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const bool in_backward : {false, true}) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), kStep);
      DistributedOptimizerOptions options = every(AlgorithmName::AdaptThenCombine, 1);
      options.schedule = topology::one_peer_exponential(context.size());
      options.step_in_backward = in_backward;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      for (int step = 0; step < 6; ++step) {
        const auto closure = [&] {
          if (step == 2 && context.rank() == 1) {
            throw std::runtime_error("no batch");
          }
          optimizer.zero_grad();
          at::Tensor loss = problem.loss(point.x());
          loss.backward();
          return loss;
        };
        try {
          optimizer.step(closure);
        } catch (const std::exception& error) {
          EXPECT_EQ(step, 2);
          EXPECT_THAT(error.what(), HasSubstr("no batch"));
        }
        EXPECT_EQ(optimizer.round_count(), step + 1);
        meet(context);
        if (step == 2) {
          optimizer.restart();
        }
      }
    }
  });
}

TEST(Rounds, APlanOfTheCallersIsUsedOnce) {
  on_ranks(some_ranks(2), [](Context& context) {
    Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizerOptions options = every(AlgorithmName::AdaptThenCombine, 1);
    options.schedule = topology::static_schedule(MixingMatrix::identity(context.size()));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    // Everybody takes over the value of the rank before it.
    const int n = context.size();
    const int before = (context.rank() + n - 1) % n;
    const int after = (context.rank() + 1) % n;
    const NeighborPlan plan{.rank = context.rank(),
                            .size = n,
                            .self_weight = 0.0,
                            .sources = {{before, 1.0}},
                            .destinations = {{after, 1.0}}};
    optimizer.set_next_plan(plan);
    optimizer.step();
    const at::Tensor expected = Point(static_cast<std::uint64_t>(before)).x();
    EXPECT_SAME(point.x(), expected);
    optimizer.step();
    EXPECT_SAME(point.x(), expected);

    NeighborPlan other = plan;
    other.size = n + 1;
    EXPECT_THROW(optimizer.set_next_plan(other), InvalidArgument);
  });
}

/// A function of the round in place of a schedule: the same bits, checked or not.
TEST(Rounds, PlansOfTheCallersOwnTakeThePlaceOfASchedule) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    for (const ops::PlanCheck check : {ops::PlanCheck::Checked, ops::PlanCheck::Trusted}) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      const Point same(0);
      torch::optim::SGD sgd(point.parameters(), kStep);
      torch::optim::SGD same_sgd(same.parameters(), kStep);
      DistributedOptimizerOptions options = every(AlgorithmName::AdaptThenCombine, 2);
      std::vector<std::int64_t> asked;
      options.plan_check = check;
      options.plans = [&](std::int64_t round) {
        asked.push_back(round);
        return *schedule.plan_for(context.rank(), round);
      };
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      options.plans = nullptr;
      options.schedule = schedule;
      DistributedOptimizer by_schedule(context.shared_from_this(), same_sgd, same, options);
      for (int step = 0; step < 6; ++step) {
        train(optimizer, point, problem);
        train(by_schedule, same, problem);
      }
      EXPECT_SAME(point.x(), same.x());
      EXPECT_EQ(asked, (std::vector<std::int64_t>{0, 1, 2}));
    }
  });
}

/// An exception from the function, or a plan of another rank: peers are told, and go on.
TEST(Rounds, APlanFunctionThatFailsIsNamed) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizerOptions options = every(AlgorithmName::AdaptThenCombine, 1);
    options.plans = [&](std::int64_t round) {
      const bool is_wrong = context.rank() == 0 && round == 0;
      return NeighborPlan::alone(is_wrong ? 1 : context.rank(), context.size());
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    try {
      optimizer.step();
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(context.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("expected the plan of rank 0"));
    } catch (const PeerFailure& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_THAT(error.what(), HasSubstr("expected the plan of rank 0"));
    }
  });
}

TEST(Rounds, PlansThatDoNotFitAreAnErrorOnEveryRank) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), kStep);
    for (const AlgorithmName kind :
         {AlgorithmName::AdaptThenCombine, AlgorithmName::AdaptWithCombine}) {
      DistributedOptimizerOptions options = every(kind, 1);
      options.bucket_bytes = 1 << 20;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      NeighborPlan plan = NeighborPlan::alone(context.rank(), context.size());
      if (context.rank() == 0) {
        plan.destinations = {{1, 1.0}};
      }
      optimizer.set_next_plan(plan);
      EXPECT_THROW(
          {
            optimizer.step();
            optimizer.finish();
          },
          MismatchError);
      optimizer.step();
      optimizer.finish();
    }
  });
}

TEST(Rounds, WrongOptionsAreRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kStep);
    DistributedOptimizerOptions options;
    options.num_steps_per_communication = 0;
    EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), sgd, point, options),
                 InvalidArgument);
    options = {};
    options.bucket_bytes = -1;
    EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), sgd, point, options),
                 InvalidArgument);
    options = {};
    options.schedule = topology::one_peer_exponential(context.size() + 1);
    EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), sgd, point, options),
                 InvalidArgument);
    options = {};
    options.algorithm = AlgorithmName::None;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    EXPECT_THROW(optimizer.set_next_plan(NeighborPlan::alone(context.rank(), context.size())),
                 StateError);
  });
}

/// Ranks with different numbers of batches: a rank that goes on gets an error about the others.
TEST(Rounds, ARankThatHasRunOutOfBatchesIsNamed) {
  for (const AlgorithmName kind : {AlgorithmName::AdaptThenCombine, AlgorithmName::AdaptWithCombine,
                                   AlgorithmName::GradientAllreduce}) {
    Ranks ranks = some_ranks(2);
    ranks.at_most = 2;
    ranks.expect_usable = false;
    on_ranks(ranks, [kind](Context& context) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), kStep);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, every(kind, 1));
      const int batches = context.rank() == 0 ? 4 : 3;
      const auto run = [&] {
        for (int batch = 0; batch < batches; ++batch) {
          train(optimizer, point, problem);
        }
        optimizer.finish();
        ops::barrier(context);
      };
      try {
        run();
        ADD_FAILURE() << "expected an error";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), AnyOf(HasSubstr("bucket"), HasSubstr("barrier")));
      }
    });
  }
}

struct WithStatistics : torch::nn::Module {
  WithStatistics() {
    weight = register_parameter("weight", at::zeros({2}));
    mean = register_buffer("mean", at::zeros({3}));
    count = register_buffer("count", at::zeros({}, at::kLong));
  }
  at::Tensor weight;
  at::Tensor mean;
  at::Tensor count;
};

TEST(Rounds, BuffersFollowTheirPolicy) {
  on_ranks(some_ranks(), [](Context& context) {
    const double r = context.rank();
    const double all = (context.size() - 1) / 2.0;
    struct Case {
      BufferPolicy policy;
      double mean_after_step, mean_after_finish, count;
    };
    for (const Case& expected :
         {Case{BufferPolicy::Local, r, r, r}, Case{BufferPolicy::AverageOnFinish, r, all, r},
          Case{BufferPolicy::AverageEveryRound, all, all, r},
          Case{BufferPolicy::BroadcastFromRankZero, 0, 0, 0}}) {
      WithStatistics model;
      model.mean.fill_(r);
      model.count.fill_(r);
      torch::optim::SGD sgd(model.parameters(), kStep);
      DistributedOptimizerOptions options;
      options.buffers = expected.policy;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, model, options);
      optimizer.step();
      EXPECT_EQ(difference(model.mean, at::full({3}, expected.mean_after_step), 1e-6), "");
      optimizer.finish();
      EXPECT_EQ(difference(model.mean, at::full({3}, expected.mean_after_finish), 1e-6), "");
      EXPECT_EQ(model.count.item<std::int64_t>(), expected.count);
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
