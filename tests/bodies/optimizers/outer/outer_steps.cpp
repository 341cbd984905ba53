// Algorithms with outer steps against their equations over all ranks, in float64.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/compression.hpp"
#include "tests/bodies/optimizers/outer/outer_runs.hpp"
#include "topology/one_to_one.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;

/// Rows θ and x to the next θ in outer step `t`.
using OuterStep = std::function<at::Tensor(const at::Tensor& theta, const at::Tensor& x, int t)>;

/// Local steps of all ranks and `outer` after each `kInner` of them, against what this rank found.
void expect_follows(const std::vector<at::Tensor>& found, Context& context,
                    const OuterStep& outer) {
  at::Tensor theta = starting_points(context.size(), Start::Different);
  at::Tensor x = theta;
  for (std::size_t step = 0; step < found.size(); ++step) {
    x = x - kOuterRate * gradients(x);
    if (step % kInner == kInner - 1) {
      theta = outer(theta, x, static_cast<int>(step) / kInner);
      x = theta;
    }
    EXPECT_CLOSE(found[step], x[context.rank()]);
  }
}

std::vector<Schedule> outer_schedules(int size) {
  return {topology::static_schedule(topology::symmetric_exponential(size)),
          topology::one_peer_exponential(size), topology::random_matching(size, 7)};
}

TEST(OuterSteps, OfDiLoCoFollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    const at::Tensor j = dense(topology::fully_connected(context.size()));
    OuterMomentumOfAll momentum{.beta = 0.9, .is_nesterov = true};
    expect_follows(run_outer_steps(context, outer_options("diloco")), context,
                   [&](const at::Tensor& theta, const at::Tensor& x, int /*t*/) {
                     return momentum.next(theta, 0.7 * (theta - j.mm(x)));
                   });
  });
}

TEST(OuterSteps, OfGossipDiLoCoFollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    for (const Schedule& schedule : outer_schedules(context.size())) {
      OuterMomentumOfAll momentum{.beta = 0.5, .is_nesterov = true};
      expect_follows(
          run_outer_steps(context,
                          outer_options("gossip_diloco", {{"outer_momentum", 0.5}}, schedule)),
          context, [&](const at::Tensor& theta, const at::Tensor& x, int t) {
            return momentum.next(theta, 0.7 * (theta - dense(schedule.mixing_matrix(t)).mm(x)));
          });
    }
  });
}

/// The paper's form: averages of the local steps and of θ by themselves.
TEST(OuterSteps, OfNoLoCoFollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    for (const Schedule& schedule : outer_schedules(context.size())) {
      for (const double gamma : {1.0, 0.7}) {
        OuterMomentumOfAll momentum{.beta = 0.5};
        const auto options = outer_options("noloco", {{"consensus_step_size", gamma}}, schedule);
        expect_follows(run_outer_steps(context, options), context,
                       [&](const at::Tensor& theta, const at::Tensor& x, int t) {
                         const at::Tensor w = dense(schedule.mixing_matrix(t));
                         return momentum.next(
                             theta, 0.7 * w.mm(theta - x) + gamma * (theta - w.mm(theta)));
                       });
      }
    }
  });
}

TEST(OuterSteps, OfAcceleratedGossipFollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    for (const Schedule& schedule : outer_schedules(context.size())) {
      at::Tensor earlier = starting_points(context.size(), Start::Different);
      const auto options = outer_options(
          "accelerated_gossip",
          {{"outer_learning_rate", 0.8}, {"consensus_step_size", 0.9}, {"acceleration", 0.3}},
          schedule);
      expect_follows(run_outer_steps(context, options), context,
                     [&](const at::Tensor& theta, const at::Tensor& x, int t) {
                       const at::Tensor y = theta - 0.8 * (theta - x);
                       const at::Tensor averages = dense(schedule.mixing_matrix(t)).mm(y);
                       const at::Tensor before = std::exchange(earlier, y);
                       return y - 0.9 * (y - averages) + 0.3 * (y - before);
                     });
    }
  });
}

/// Rounds of local steps and of gossip between outer steps.
TEST(OuterSteps, OfSlowMoFollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    auto options =
        outer_options("slowmo", {{"outer_learning_rate", 0.8}, {"outer_momentum", 0.6}}, schedule);
    options.num_steps_per_communication = 2;
    options.global_period_rounds = 3;
    const auto found = run_outer_steps(context, options);
    OuterMomentumOfAll momentum{.beta = 0.6};
    at::Tensor theta = starting_points(context.size(), Start::Different);
    at::Tensor x = theta;
    for (int step = 0; step < kInner * kOuter; ++step) {
      x = x - kOuterRate * gradients(x);
      const int round = step / 2;
      if (step % 2 == 1 && round % 3 == 2) {
        theta = momentum.next(
            theta, 0.8 * (theta - dense(topology::fully_connected(context.size())).mm(x)));
        x = theta;
      } else if (step % 2 == 1) {
        x = dense(schedule.mixing_matrix(round)).mm(x);
      }
      EXPECT_CLOSE(found[static_cast<std::size_t>(step)], x[context.rank()]);
    }
  });
}

/// Its average is CHOCO's.
TEST(OuterSteps, OfCodesComeToAgreeOnTheMean) {
  const Ranks ranks{
      .at_least = 2, .at_most = 4, .thread_counts = {4}, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    for (const Schedule& schedule : {topology::static_schedule(topology::ring(context.size())),
                                     topology::one_peer_exponential(context.size())}) {
      const at::Tensor mean = starting_points(context.size(), Start::Different).mean(0);
      auto options = outer_options("gossip_diloco", {}, schedule);
      options.num_steps_per_communication = 1;
      options.compression = ops::compression_named("int4");
      const at::Tensor end = run_outer_steps(context, options, Start::Different, 300, 0.0).back();
      EXPECT_EQ(difference(end, mean, 1e-6), "");
    }
  });
}

void expect_alike(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step) {
    EXPECT_CLOSE(found[step], expected[step]);
  }
}

/// Rates of 1 and no momentum leave the averages themselves.
TEST(OuterSteps, OfLearningRateOneWithoutMomentumAreAverages) {
  on_ranks(some_ranks(), [](Context& context) {
    const Numbers plain{{"outer_learning_rate", 1.0}, {"outer_momentum", 0.0}};
    const Schedule schedule = topology::one_peer_exponential(context.size());
    const auto local = run_outer_steps(context, outer_options("local_sgd"));
    expect_alike(run_outer_steps(context, outer_options("diloco", plain)), local);
    const auto diffusion =
        run_outer_steps(context, outer_options("adapt_then_combine", {}, schedule));
    expect_alike(run_outer_steps(context, outer_options("gossip_diloco", plain, schedule)),
                 diffusion);
    expect_alike(run_outer_steps(context, outer_options("noloco", plain, schedule)), diffusion);
    expect_alike(run_outer_steps(context, outer_options("accelerated_gossip",
                                                        {{"acceleration", 0.0}}, schedule)),
                 diffusion);
    expect_alike(run_outer_steps(context, outer_options("slowmo", plain, schedule)),
                 run_outer_steps(context, outer_options("gossip_pga", {}, schedule)));
  });
}

/// H counts steps: gradients that more than H backward passes have added up are one local step.
TEST(OuterSteps, CountStepsAndNotPasses) {
  on_ranks(some_ranks(), [](Context& context) {
    constexpr int kPasses = kInner + 1;
    for (const char* name : {"local_sgd", "diloco", "streaming_diloco", "gossip_diloco",
                             "sparse_loco", "noloco", "accelerated_gossip", "slowmo"}) {
      const auto options = outer_options(name);
      const auto expected = run_outer_steps(context, options, Start::Different, kInner * kOuter,
                                            kPasses * kOuterRate / 2);
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(static_cast<std::uint64_t>(context.rank()));
      torch::optim::SGD sgd(point.parameters(), kOuterRate / 2);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      for (std::size_t step = 0; step < expected.size(); ++step) {
        optimizer.zero_grad();
        for (int pass = 0; pass < kPasses; ++pass) {
          problem.loss(point.x()).backward();
        }
        optimizer.step();
        EXPECT_EQ(optimizer.round_count(), static_cast<std::int64_t>(step + 1) / kInner) << name;
        EXPECT_CLOSE(point.x(), expected[step]) << name;
      }
    }
  });
}

/// H = 1 without outer momentum: SGD at the product of both rates.
TEST(OuterSteps, AfterEachLocalStepAreParallelSgd) {
  on_ranks(some_ranks(), [](Context& context) {
    auto options = outer_options("diloco", {{"outer_learning_rate", 0.5}, {"outer_momentum", 0.0}});
    options.num_steps_per_communication = 1;
    const auto parallel = run_outer_steps(context, {.algorithm = "gradient_allreduce"},
                                          Start::Equal, kInner * kOuter, 0.5 * kOuterRate);
    expect_alike(run_outer_steps(context, options, Start::Equal), parallel);
  });
}

/// Rounds of W = J of ranks that began alike are averages over all.
TEST(OuterSteps, OverAllRanksAreTheSameByAnyName) {
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule all = topology::static_schedule(topology::fully_connected(context.size()));
    expect_alike(run_outer_steps(context, outer_options("gossip_diloco", {}, all), Start::Equal),
                 run_outer_steps(context, outer_options("diloco"), Start::Equal));
    auto slowmo = outer_options("slowmo", {{"outer_learning_rate", 0.7}});
    slowmo.global_period_rounds = 1;
    expect_alike(run_outer_steps(context, outer_options("noloco", {}, all), Start::Equal),
                 run_outer_steps(context, slowmo, Start::Equal));
  });
}

/// Without local steps ranks come to agree on the mean, which stays, by every algorithm's own
/// schedule and numbers.
TEST(OuterSteps, KeepTheMeanAndComeToAgree) {
  const Ranks ranks{
      .at_least = 4, .at_most = 8, .thread_counts = {8}, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    const at::Tensor mean = starting_points(context.size(), Start::Different).mean(0);
    for (const char* name : {"diloco", "gossip_diloco", "noloco", "accelerated_gossip", "slowmo",
                             "streaming_diloco"}) {
      auto options = outer_options(name);
      options.num_steps_per_communication = 1;
      const at::Tensor end = run_outer_steps(context, options, Start::Different, 400, 0.0).back();
      EXPECT_EQ(difference(end, mean, 1e-9), "") << name;
    }
  });
}

TEST(OuterSteps, OfAcceleratedGossipAgreeSoonerOnAFixedGraph) {
  on_ranks(exactly(8), [](Context& context) {
    const at::Tensor mean = starting_points(context.size(), Start::Different).mean(0);
    const auto distance_with = [&](double acceleration) {
      auto options = outer_options("accelerated_gossip", {{"acceleration", acceleration}},
                                   topology::static_schedule(topology::ring(context.size())));
      options.num_steps_per_communication = 1;
      const at::Tensor end = run_outer_steps(context, options, Start::Different, 40, 0.0).back();
      return squared_distance(context, end, mean);
    };
    EXPECT_LT(distance_with(0.3), 1e-6 * distance_with(0.0));
  });
}

/// A round that fails leaves what the local steps have made, also where another value was sent.
TEST(OuterSteps, ThatFailLeaveTheLocalSteps) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const char* name : {"noloco", "accelerated_gossip"}) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(static_cast<std::uint64_t>(context.rank()));
      torch::optim::SGD sgd(point.parameters(), kOuterRate);
      auto options =
          outer_options(name, {{"outer_learning_rate", 0.5}},
                        topology::static_schedule(topology::fully_connected(context.size())));
      options.num_steps_per_communication = 1;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      const at::Tensor start = point.x().detach().clone();
      if (context.rank() == 0) {
        optimizer.refuse_step("as the test has it");
        EXPECT_SAME(point.x(), start);
      } else {
        EXPECT_ANY_THROW(train(optimizer, point, problem));
        EXPECT_CLOSE(point.x(), start - kOuterRate * problem.gradient(start));
      }
    }
  });
}

/// One of three ranks rests in each outer step, and goes on from its own steps.
TEST(OuterSteps, InPairsOfAnOddNumberLeaveOneAlone) {
  on_ranks(exactly(3), [](Context& context) {
    const Schedule pairs = topology::random_matching(3, 1);
    auto options = outer_options("noloco", {{"outer_learning_rate", 1.0}, {"outer_momentum", 0.0}});
    options.num_steps_per_communication = 1;
    const auto found = run_outer_steps(context, options, Start::Different, 6, 0.0);
    at::Tensor x = starting_points(3, Start::Different);
    for (int step = 0; step < 6; ++step) {
      const at::Tensor w = dense(pairs.mixing_matrix(step));
      EXPECT_EQ(w.diagonal().eq(1.0).sum().item<std::int64_t>(), 1);
      x = w.mm(x);
      EXPECT_CLOSE(found[static_cast<std::size_t>(step)], x[context.rank()]);
    }
  });
}

/// A rank that cannot take part in an outer step: ranks agree again, and about the mean.
TEST(OuterSteps, ThatFailAreMadeUpForByTheNextOnes) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const char* name : {"diloco", "gossip_diloco", "noloco", "accelerated_gossip", "slowmo",
                             "streaming_diloco"}) {
      const at::Tensor mean = starting_points(context.size(), Start::Different).mean(0);
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(static_cast<std::uint64_t>(context.rank()));
      torch::optim::SGD sgd(point.parameters(), 0.0);
      auto options = outer_options(
          name, {}, topology::static_schedule(topology::fully_connected(context.size())));
      options.num_steps_per_communication = 1;
      if (options.algorithm == optimizers::AlgorithmName::SlowMo) {
        options.global_period_rounds = 1;
      } else if (options.algorithm == optimizers::AlgorithmName::StreamingDiLoCo) {
        options.numbers["delay_steps"] = 0;  // or it would fail a step later
      }
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      train(optimizer, point, problem);
      if (context.rank() == 0) {
        optimizer.refuse_step("as the test has it");
      } else {
        EXPECT_ANY_THROW(train(optimizer, point, problem)) << name;
      }
      for (int step = 0; step < 150; ++step) {
        train(optimizer, point, problem);
      }
      EXPECT_EQ(difference(point.x(), mean, 1e-9), "") << name;
    }
  });
}

/// Restarted at another model, local steps count from there.
TEST(OuterSteps, BeginAnewAfterARestart) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const char* name : {"diloco", "gossip_diloco", "noloco", "accelerated_gossip"}) {
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(99);
      torch::optim::SGD sgd(point.parameters(), kOuterRate);
      DistributedOptimizer optimizer(
          context.shared_from_this(), sgd, point,
          outer_options(name, {},
                        topology::static_schedule(topology::fully_connected(context.size()))));
      for (int step = 0; step < 2 * kInner; ++step) {
        train(optimizer, point, problem);
      }
      {
        const at::NoGradGuard no_grad;
        for (at::Tensor& parameter : point.parameters()) {
          parameter.fill_(0.25);
        }
      }
      optimizer.restart();
      for (int step = 0; step < kInner - 1; ++step) {
        train(optimizer, point, problem);
      }
      const at::Tensor before = point.x().detach().clone();
      at::Tensor x = at::full_like(before, 0.25);
      for (int step = 0; step < kInner - 1; ++step) {
        x = x - kOuterRate * problem.gradient(x);
      }
      EXPECT_CLOSE(before, x);
      train(optimizer, point, problem);
      // One outer step from θ = 0.25 with v = 0, by the mean of the ranks' local steps.
      at::Tensor all = at::full({context.size(), LeastSquares::kDimension}, 0.25, at::kDouble);
      for (int step = 0; step < kInner; ++step) {
        all = all - kOuterRate * gradients(all);
      }
      const at::Tensor mean_step = 0.25 - all.mean(0);
      const std::map<std::string, double> shares{
          {"diloco", 0.7 * 1.9}, {"gossip_diloco", 0.7 * 1.9}, {"noloco", 0.7}};
      if (const auto share = shares.find(name); share != shares.end()) {
        EXPECT_CLOSE(point.x(), 0.25 - share->second * mean_step) << name;
      } else {
        EXPECT_CLOSE(point.x(), 0.25 - mean_step - 0.2 * (0.25 - all[context.rank()]));
      }
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
