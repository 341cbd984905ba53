// Algorithms with outer steps against their equations over all ranks, in float64.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/compression.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "topology/one_to_one.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kOuterRate = 0.05;
/// Steps between outer ones, and outer steps.
constexpr int kInner = 3;
constexpr int kOuter = 5;

using Numbers = std::map<std::string, double, std::less<>>;

DistributedOptimizerOptions outer_options(optimizers::AlgorithmName algorithm, Numbers numbers = {},
                                          std::optional<Schedule> schedule = std::nullopt) {
  DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.schedule = std::move(schedule);
  options.numbers = std::move(numbers);
  options.num_steps_per_communication = kInner;
  options.bucket_bytes = 32;
  return options;
}

Ranks ranks_of_outer_steps() { return {.at_most = 4, .layouts = {Layout::OneHost}}; }

/// This rank's point after each of `steps` steps.
std::vector<at::Tensor> run_outer_steps(Context& context,
                                        const DistributedOptimizerOptions& options,
                                        Start start = Start::Different, int steps = kInner * kOuter,
                                        double rate = kOuterRate) {
  const LeastSquares problem = LeastSquares::of_rank(context.rank());
  const Point point(start == Start::Equal ? 0 : static_cast<std::uint64_t>(context.rank()));
  torch::optim::SGD sgd(point.parameters(), rate);
  DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
  std::vector<at::Tensor> points;
  for (int step = 0; step < steps; ++step) {
    train(optimizer, point, problem);
    points.push_back(point.x().detach().clone());
  }
  return points;
}

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

/// v, and the next θ by it.
struct Momentum {
  double beta = 0.0;
  bool is_nesterov = false;
  at::Tensor v{};

  at::Tensor next(const at::Tensor& theta, const at::Tensor& g) {
    v = v.defined() ? beta * v + g : g;
    return theta - (is_nesterov ? g + beta * v : v);
  }
};

std::vector<Schedule> outer_schedules(int size) {
  return {topology::static_schedule(topology::symmetric_exponential(size)),
          topology::one_peer_exponential(size), topology::random_matching(size, 7)};
}

TEST(OuterSteps, OfDiLoCoFollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    const at::Tensor j = dense(topology::fully_connected(context.size()));
    Momentum momentum{.beta = 0.9, .is_nesterov = true};
    expect_follows(run_outer_steps(context, outer_options("diloco")), context,
                   [&](const at::Tensor& theta, const at::Tensor& x, int /*t*/) {
                     return momentum.next(theta, 0.7 * (theta - j.mm(x)));
                   });
  });
}

TEST(OuterSteps, OfGossipDiLoCoFollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    for (const Schedule& schedule : outer_schedules(context.size())) {
      Momentum momentum{.beta = 0.5, .is_nesterov = true};
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
        Momentum momentum{.beta = 0.5};
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
    Momentum momentum{.beta = 0.6};
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

/// One bucket, of which the second fragment has all parameters: they are fewer than its cut.
TEST(OuterSteps, OfStreamingDiLoCoFollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    const at::Tensor j = dense(topology::fully_connected(context.size()));
    for (const int delay : {0, 1, 2, 7}) {
      auto options = outer_options(
          "streaming_diloco", {{"fragments", 2}, {"delay_steps", delay}, {"local_share", 0.25}});
      options.bucket_bytes = 1 << 20;
      const auto found = run_outer_steps(context, options);
      Momentum momentum{.beta = 0.9, .is_nesterov = true};
      at::Tensor theta = starting_points(context.size(), Start::Different);
      at::Tensor x = theta;
      at::Tensor sent;
      int due = -1;
      for (int step = 0; step < kInner * kOuter; ++step) {
        x = x - kOuterRate * gradients(x);
        const auto take_effect = [&] {
          theta = momentum.next(theta, 0.7 * (theta - j.mm(sent)));
          x = 0.25 * x + 0.75 * theta;
          sent.reset();
        };
        const bool communicates = step % kInner == kInner - 1;
        if (sent.defined() && (step >= due || communicates)) {
          take_effect();
        }
        if (communicates && step / kInner % 2 == 1) {
          sent = x;
          due = step + delay;
          if (delay == 0) {
            take_effect();
          }
        }
        EXPECT_CLOSE(found[static_cast<std::size_t>(step)], x[context.rank()]) << delay;
      }
    }
  });
}

/// A parameter of many elements is cut: each part is averaged once in P rounds, and changes by
/// local steps alone in the others.
TEST(OuterSteps, OfStreamingDiLoCoTakeTheFragmentsInTurn) {
  on_ranks(some_ranks(2), [](Context& context) {
    constexpr std::int64_t kCount = 1'000;
    constexpr std::int64_t kFragments = 3;
    Bag bag;
    const double own = std::exp2(context.rank());  // not the mean, on any rank
    const double mean = (std::exp2(context.size()) - 1) / context.size();
    const at::Tensor x = bag.add("x", at::full({kCount}, own, at::kDouble));
    torch::optim::SGD sgd(bag.parameters(), 0.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   {.algorithm = "streaming_diloco",
                                    .numbers = {{"fragments", kFragments},
                                                {"delay_steps", 0},
                                                {"local_share", 0.0},
                                                {"outer_learning_rate", 1.0},
                                                {"outer_momentum", 0.0}}});
    std::int64_t averaged = 0;
    for (std::int64_t round = 0; round < kFragments; ++round) {
      optimizer.step();
      const auto now = (x - mean).abs().lt(1e-12).sum().item<std::int64_t>();
      EXPECT_NEAR(static_cast<double>(now - averaged), kCount / 3.0, 64.0);
      EXPECT_EQ((x - own).abs().lt(1e-12).sum().item<std::int64_t>(), kCount - now);
      averaged = now;
    }
    EXPECT_EQ(averaged, kCount);
  });
}

/// Buckets that cannot be cut have their turns one after the other.
TEST(OuterSteps, OfStreamingDiLoCoSpreadShortBuckets) {
  on_ranks(some_ranks(2), [](Context& context) {
    Bag bag;
    for (const char* name : {"a", "b", "c"}) {
      bag.add(name, at::full({5}, std::exp2(context.rank()), at::kDouble));
    }
    const double mean = (std::exp2(context.size()) - 1) / context.size();
    torch::optim::SGD sgd(bag.parameters(), 0.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   {.algorithm = "streaming_diloco",
                                    .numbers = {{"fragments", 3},
                                                {"delay_steps", 0},
                                                {"local_share", 0.0},
                                                {"outer_learning_rate", 1.0},
                                                {"outer_momentum", 0.0}},
                                    .bucket_bytes = 1});
    for (int round = 1; round <= 3; ++round) {
      optimizer.step();
      int averaged = 0;
      for (const at::Tensor& parameter : bag.parameters()) {
        averaged += difference(parameter.detach(), at::full_like(parameter, mean), 1e-12).empty();
      }
      EXPECT_EQ(averaged, round);
    }
  });
}

TEST(OuterSteps, OfStreamingDiLoCoInOneFragmentAtOnceAreDiLoCos) {
  on_ranks(some_ranks(), [](Context& context) {
    const auto streaming = run_outer_steps(
        context, outer_options("streaming_diloco",
                               {{"fragments", 1}, {"delay_steps", 0}, {"local_share", 0.0}}));
    const auto diloco = run_outer_steps(context, outer_options("diloco"));
    for (std::size_t step = 0; step < diloco.size(); ++step) {
      EXPECT_SAME(streaming[step], diloco[step]);
    }
  });
}

/// A fragment under way takes effect before it is saved, and is forgotten with a restart.
TEST(OuterSteps, UnderWayAreDrainedOrDiscarded) {
  on_ranks(some_ranks(2), [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("x", at::full({3}, context.rank(), at::kDouble));
    torch::optim::SGD sgd(bag.parameters(), 0.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   {.algorithm = "streaming_diloco",
                                    .num_steps_per_communication = 2,
                                    .numbers = {{"fragments", 1},
                                                {"local_share", 0.0},
                                                {"outer_learning_rate", 1.0},
                                                {"outer_momentum", 0.0}}});
    const auto holds = [&](double value) {
      return x.sub(value).abs().max().item<double>() < 1e-12;
    };
    optimizer.step();
    optimizer.step();
    EXPECT_TRUE(holds(context.rank()));
    optimizer.drain();
    EXPECT_TRUE(holds(mean_rank(context)));
    {
      const at::NoGradGuard no_grad;
      bag.parameters()[0].fill_(10.0 * context.rank());
    }
    optimizer.step();
    optimizer.step();
    optimizer.restart();
    optimizer.step();
    EXPECT_TRUE(holds(10.0 * context.rank()));
    optimizer.finish();
    EXPECT_TRUE(holds(10.0 * context.rank()));
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

/// Momentum multiplies what a rough code gets wrong: rounds that do not converge are refused.
TEST(OuterSteps, OfCodesThatAreTooRoughAreRefused) {
  const Ranks ranks{
      .at_least = 4, .at_most = 4, .thread_counts = {4}, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
    const Schedule ring = topology::static_schedule(topology::ring(context.size()));
    const auto refusal_with = [&](const std::string& code, Numbers numbers) {
      auto options = outer_options("gossip_diloco", std::move(numbers), ring);
      options.compression = ops::compression_named(code);
      options.num_steps_per_communication = 1;
      try {
        const auto points = run_outer_steps(context, options, Start::Different, 200, 0.0);
        const at::Tensor mean = starting_points(context.size(), Start::Different).mean(0);
        EXPECT_EQ(difference(points.back(), mean, 0.1), "") << code;
        return std::string();
      } catch (const InvalidArgument& error) {
        return std::string(error.what());
      }
    };
    EXPECT_EQ(refusal_with("int4", {}), "");
    EXPECT_EQ(refusal_with("int8", {}), "");
    EXPECT_EQ(refusal_with("bfloat16", {}), "");
    EXPECT_THAT(
        refusal_with("sign", {{"consensus_step_size", 0.2}}),
        HasSubstr("compression sign, outer_momentum 0.9, outer_learning_rate 0.7, "
                  "consensus_step_size 0.2: gossip_diloco expects differences between ranks "
                  "to die out"));
    EXPECT_THAT(refusal_with("topk", {{"consensus_step_size", 0.2}}), HasSubstr("a factor of 1."));
    EXPECT_THAT(refusal_with("float16", {{"consensus_step_size", 1.5}}), HasSubstr("a factor of"));
    auto options = outer_options("gossip_diloco", {},
                                 topology::static_schedule(unbalanced_graph(4).transposed()));
    options.compression = ops::compression_named("int8");
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("gossip_diloco with a compression expects weights of at least 0, rows"));
    Bag bag;
    bag.add("x", at::ones({3}, at::kBFloat16));
    torch::optim::SGD sgd(bag.parameters(), 0.1);
    options.schedule = ring;
    EXPECT_THAT(error_of<UnsupportedError>([&] {
                  const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                                       options);
                }),
                HasSubstr("compression int8: expected parameters of float32 or float64"));
  });
}

TEST(OuterSteps, OfCodesExpectLinksThatComeAgain) {
  on_ranks(some_ranks(2), [](Context& context) {
    auto options = outer_options("gossip_diloco");
    options.compression = ops::compression_named("int4");
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("gossip_diloco with a compression expects at most 64 matrices"));
    options.plans = [&](std::int64_t /*round*/) {
      return NeighborPlan::alone(context.rank(), context.size());
    };
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("gossip_diloco with a compression expects a schedule"));
    options = outer_options("noloco");
    options.compression = ops::compression_named("int4");
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("compression: expected choco or gossip_diloco, found noloco"));
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
  const Ranks ranks{
      .at_least = 8, .at_most = 8, .thread_counts = {8}, .layouts = {Layout::OneHost}};
  on_ranks(ranks, [](Context& context) {
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

TEST(OuterSteps, UnderWhichDifferencesStayAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto why = [&](const DistributedOptimizerOptions& options) {
      return error_of<InvalidArgument>([&] { run_outer_steps(context, options); });
    };
    // The schedules are the algorithms' own.
    if (context.size() >= 8) {
      EXPECT_THAT(why(outer_options("noloco", {{"outer_momentum", 0.95}})),
                  HasSubstr("outer_momentum 0.95, outer_learning_rate 0.7: noloco expects "
                            "differences between ranks to die out over what it averages with where "
                            "there are no gradients, found that they grow by a factor of 1."));
      EXPECT_THAT(
          why(outer_options("accelerated_gossip", {{"acceleration", 0.95}})),
          HasSubstr("acceleration 0.95, consensus_step_size 1: accelerated_gossip expects"));
    }
    for (const char* name : {"diloco", "streaming_diloco", "gossip_diloco"}) {
      EXPECT_THAT(why(outer_options(name, {{"outer_learning_rate", 1.9}})),
                  HasSubstr("outer_learning_rate 1.9: "))
          << name;
      EXPECT_THAT(why(outer_options(name, {{"outer_learning_rate", 0.0}})),
                  HasSubstr("stay as large as they are; use smaller ones, but a rate above 0"))
          << name;
    }
    EXPECT_THAT(why(outer_options("slowmo", {{"outer_learning_rate", 3.5}})),
                HasSubstr("outer_momentum 0.5, outer_learning_rate 3.5: slowmo expects"));
    if (context.size() == 3) {  // roots on the unit circle
      EXPECT_THAT(why(outer_options(
                      "noloco", {},
                      topology::static_schedule(topology::ring(3, topology::RingStyle::Right)))),
                  HasSubstr("stay as large as they are"));
    }
  });
}

TEST(OuterSteps, OutOfBoundsAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto why = [&](const DistributedOptimizerOptions& options) {
      return error_of<InvalidArgument>([&] { run_outer_steps(context, options); });
    };
    EXPECT_THAT(why(outer_options("diloco", {{"outer_momentum", 1.0}})),
                HasSubstr("outer_momentum: expected from 0 to below 1, found 1"));
    EXPECT_THAT(why(outer_options("noloco", {{"outer_learning_rate", 1e300}})),
                HasSubstr("outer_learning_rate: expected from 0 to below 10"));
    EXPECT_THAT(why(outer_options("streaming_diloco", {{"fragments", 2.5}})),
                HasSubstr("fragments: expected a whole number, found 2.5"));
    EXPECT_THAT(
        why(outer_options("streaming_diloco",
                          {{"fragments", 1}, {"local_share", 0.0}, {"delay_steps", kInner}})),
        HasSubstr("expects fewer steps than num_steps_per_communication (3)"));
    EXPECT_THAT(why(outer_options("diloco", {{"consensus_step_size", 1.0}})),
                HasSubstr("numbers: expected options that diloco lists"));
    EXPECT_THAT(why(outer_options("gossip_diloco", {{"consensus_step_size", 0.5}})),
                HasSubstr("consensus_step_size: expected a compression, whose it is, found none"));
  });
}

/// An option left out is its default; another one on one rank alone is named.
TEST(OuterSteps, WithOtherOptionsOnARankAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const bool is_first = context.rank() == 0;
    run_outer_steps(
        context, outer_options("diloco", is_first ? Numbers{{"outer_momentum", 0.9}} : Numbers{}));
    EXPECT_THAT(error_of<MismatchError>([&] {
                  run_outer_steps(
                      context, outer_options("diloco", is_first ? Numbers{{"outer_momentum", 0.1}}
                                                                : Numbers{}));
                }),
                AllOf(HasSubstr("outer_momentum 0.1"), HasSubstr("outer_momentum 0.9")));
    auto options = outer_options("diloco");
    options.num_steps_per_communication = is_first ? 3 : 4;
    EXPECT_THAT(error_of<MismatchError>([&] { run_outer_steps(context, options); }),
                HasSubstr("num_steps_per_communication 3"));
  });
}

/// A rank that cannot take part while a fragment is under way, and one whose own step fails then.
TEST(OuterSteps, UnderWayAreHeardOfWhenTheyFail) {
  const Ranks two{.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}};
  on_ranks(two, [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("x", at::full({3}, context.rank(), at::kDouble));
    torch::optim::SGD sgd(bag.parameters(), 0.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   {.algorithm = "streaming_diloco",
                                    .num_steps_per_communication = 2,
                                    .numbers = {{"fragments", 1},
                                                {"local_share", 0.0},
                                                {"outer_learning_rate", 1.0},
                                                {"outer_momentum", 0.0}}});
    const bool is_first = context.rank() == 0;
    optimizer.step();
    if (is_first) {
      optimizer.refuse_step("as the test has it");
      optimizer.step();
    } else {
      optimizer.step();
      EXPECT_THAT(error_of<PeerFailure>([&] { optimizer.step(); }),
                  HasSubstr("as the test has it"));
    }
    EXPECT_EQ(x[0].item<double>(), context.rank());
    optimizer.step();
    if (is_first) {
      optimizer.refuse_step("as the test has it");  // of a local step: its fragment waits
    } else {
      optimizer.step();
    }
    optimizer.drain();
    EXPECT_NEAR(x[0].item<double>(), 0.5, 1e-12);
  });
}

/// With one step a round the error comes in the next one, which is made all the same.
TEST(OuterSteps, UnderWayThatFailDoNotHoldUpTheNext) {
  const Ranks two{.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}};
  on_ranks(two, [](Context& context) {
    Bag bag;
    const at::Tensor x = bag.add("x", at::full({3}, context.rank(), at::kDouble));
    torch::optim::SGD sgd(bag.parameters(), 0.0);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                   {.algorithm = "streaming_diloco",
                                    .numbers = {{"fragments", 1},
                                                {"local_share", 0.5},
                                                {"outer_learning_rate", 1.0},
                                                {"outer_momentum", 0.0}}});
    if (context.rank() == 0) {
      optimizer.refuse_step("as the test has it");
      optimizer.step();
    } else {
      optimizer.step();
      EXPECT_THAT(error_of<PeerFailure>([&] { optimizer.step(); }),
                  HasSubstr("as the test has it"));
    }
    EXPECT_EQ(x[0].item<double>(), context.rank());
    optimizer.step();
    EXPECT_NEAR(x[0].item<double>(), 0.5 * (context.rank() + 0.5), 1e-12);
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
  const Ranks three{
      .at_least = 3, .at_most = 3, .thread_counts = {3}, .layouts = {Layout::OneHost}};
  on_ranks(three, [](Context& context) {
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
