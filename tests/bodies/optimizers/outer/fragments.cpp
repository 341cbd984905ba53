// Streaming DiLoCo: fragments, their turns and delays, and failures while one is under way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/bodies/optimizers/outer/outer_runs.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

/// SGD at a rate of 0 whose step throws where `fails`.
class FailingSgd : public torch::optim::SGD {
 public:
  explicit FailingSgd(const std::vector<at::Tensor>& parameters) : SGD(parameters, 0.0) {}
  at::Tensor step(LossClosure closure = nullptr) override {
    if (fails) {
      throw std::runtime_error("the local step fails");
    }
    return SGD::step(std::move(closure));
  }
  bool fails = false;
};

/// A model that fragments replace by the mean of all ranks. Rank r begins with 2^r everywhere, which
/// is nowhere the mean; its local steps change nothing.
struct ReplacedByMean {
  /// @param sizes of the parameters, each of which has a bucket. @param numbers beside those of a
  ///   plain average.
  ReplacedByMean(Context& context, const std::vector<std::int64_t>& sizes, Numbers numbers,
                 std::int64_t period = 1)
      : own(std::exp2(context.rank())),
        mean((std::exp2(context.size()) - 1) / context.size()),
        sgd(with_parameters(bag, sizes, own)),
        optimizer(context.shared_from_this(), sgd, bag, options_of(std::move(numbers), period)) {}

  static std::vector<at::Tensor> with_parameters(Bag& bag, const std::vector<std::int64_t>& sizes,
                                                 double value) {
    for (const std::int64_t size : sizes) {
      bag.add(std::string(bag.parameters().size() + 1, 'x'), at::full({size}, value, at::kDouble));
    }
    return bag.parameters();
  }
  static DistributedOptimizerOptions options_of(Numbers numbers, std::int64_t period) {
    numbers.merge(
        Numbers{{"local_share", 0.0}, {"outer_learning_rate", 1.0}, {"outer_momentum", 0.0}});
    DistributedOptimizerOptions options = outer_options("streaming_diloco", std::move(numbers));
    options.num_steps_per_communication = period;
    options.bucket_bytes = 1;
    return options;
  }

  [[nodiscard]] at::Tensor values() const { return at::cat(bag.parameters()).detach(); }
  /// The number of elements that are `value`.
  [[nodiscard]] std::int64_t count_of(double value) const {
    return (values() - value).abs().lt(1e-12).sum().item<std::int64_t>();
  }

  double own;
  double mean;
  Bag bag;
  FailingSgd sgd;
  DistributedOptimizer optimizer;
};

constexpr std::int64_t kSmall = 3;

/// One bucket, of which the second fragment has all parameters: they are fewer than its cut.
TEST(Fragments, FollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    const at::Tensor j = dense(topology::fully_connected(context.size()));
    for (const int delay : {0, 1, 2, 7}) {
      auto options = outer_options(
          "streaming_diloco", {{"fragments", 2}, {"delay_steps", delay}, {"local_share", 0.25}});
      options.bucket_bytes = 1 << 20;
      const auto found = run_outer_steps(context, options);
      OuterMomentumOfAll momentum{.beta = 0.9, .is_nesterov = true};
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
TEST(Fragments, TakeTheirTurns) {
  on_ranks(some_ranks(2), [](Context& context) {
    constexpr std::int64_t kCount = 1'000;
    constexpr std::int64_t kFragments = 3;
    ReplacedByMean run(context, {kCount}, {{"fragments", kFragments}, {"delay_steps", 0}});
    std::int64_t averaged = 0;
    for (std::int64_t round = 0; round < kFragments; ++round) {
      run.optimizer.step();
      const std::int64_t now = run.count_of(run.mean);
      EXPECT_NEAR(static_cast<double>(now - averaged), kCount / 3.0, 16.0);
      EXPECT_EQ(run.count_of(run.own), kCount - now);
      averaged = now;
    }
    EXPECT_EQ(averaged, kCount);
  });
}

/// Buckets that cannot be cut have their turns one after the other.
TEST(Fragments, AreSpreadOverShortBuckets) {
  on_ranks(some_ranks(2), [](Context& context) {
    ReplacedByMean run(context, {5, 5, 5}, {{"fragments", 3}, {"delay_steps", 0}});
    for (int round = 1; round <= 3; ++round) {
      run.optimizer.step();
      EXPECT_EQ(run.count_of(run.mean), 5 * round);
    }
  });
}

TEST(Fragments, OneAtOnceIsDiLoCo) {
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
TEST(Fragments, UnderWayAreDrainedOrDiscarded) {
  on_ranks(some_ranks(2), [](Context& context) {
    ReplacedByMean run(context, {kSmall}, {{"fragments", 1}}, /*period=*/2);
    run.optimizer.step();
    run.optimizer.step();
    EXPECT_EQ(run.count_of(run.own), kSmall);
    run.optimizer.drain();
    EXPECT_EQ(run.count_of(run.mean), kSmall);
    const double other = 10.0 * context.rank();
    {
      const at::NoGradGuard no_grad;
      run.bag.parameters()[0].fill_(other);
    }
    run.optimizer.step();
    run.optimizer.step();
    run.optimizer.restart();
    run.optimizer.step();
    EXPECT_EQ(run.count_of(other), kSmall);
    run.optimizer.finish();
    EXPECT_EQ(run.count_of(other), kSmall);
  });
}

/// Rank 1 hears of a fragment that rank 0 has refused, in the step in which it would take
/// effect; its own local step of that may fail too.
TEST(Fragments, UnderWayAreHeardOfWhenTheyFail) {
  on_ranks(exactly(2), [](Context& context) {
    for (const bool step_fails : {false, true}) {
      ReplacedByMean run(context, {kSmall}, {{"fragments", 1}}, /*period=*/3);
      const auto fail_once = [&] {
        run.sgd.fails = true;
        EXPECT_THAT(error_of<std::runtime_error>([&] { run.optimizer.step(); }),
                    HasSubstr("the local step fails"));
        run.sgd.fails = false;
      };
      run.optimizer.step();
      run.optimizer.step();
      if (context.rank() == 0) {
        run.optimizer.refuse_step("as the test has it");
        run.optimizer.step();
      } else {
        run.optimizer.step();
        if (step_fails) {
          fail_once();
        }
        EXPECT_THAT(error_of<PeerFailure>([&] { run.optimizer.step(); }),
                    HasSubstr("as the test has it"));
      }
      EXPECT_EQ(run.count_of(run.own), kSmall);
    }
  });
}

/// A local step that throws leaves a fragment under way, for the next one.
TEST(Fragments, UnderWayOutlastALocalStepThatFails) {
  on_ranks(some_ranks(2), [](Context& context) {
    ReplacedByMean run(context, {kSmall}, {{"fragments", 1}}, /*period=*/3);
    for (int step = 0; step < 3; ++step) {
      run.optimizer.step();
    }
    run.sgd.fails = context.rank() == 0;
    if (run.sgd.fails) {
      EXPECT_THROW(run.optimizer.step(), std::runtime_error);
      EXPECT_EQ(run.count_of(run.own), kSmall);
      run.sgd.fails = false;
      run.optimizer.step();
    } else {
      run.optimizer.step();
    }
    EXPECT_EQ(run.count_of(run.mean), kSmall);
  });
}

/// With one step a round the error comes in the next one, which is made all the same.
TEST(Fragments, UnderWayThatFailDoNotHoldUpTheNext) {
  on_ranks(exactly(2), [](Context& context) {
    ReplacedByMean run(context, {kSmall}, {{"fragments", 1}, {"local_share", 0.5}});
    if (context.rank() == 0) {
      run.optimizer.refuse_step("as the test has it");
      run.optimizer.step();
    } else {
      run.optimizer.step();
      EXPECT_THAT(error_of<PeerFailure>([&] { run.optimizer.step(); }),
                  HasSubstr("as the test has it"));
    }
    EXPECT_EQ(run.count_of(run.own), kSmall);
    run.optimizer.step();
    EXPECT_EQ(run.count_of(0.5 * (run.own + run.mean)), kSmall);
  });
}

}  // namespace
}  // namespace bluefog::testing
