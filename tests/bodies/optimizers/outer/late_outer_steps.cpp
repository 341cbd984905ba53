// DiLoCo, over all ranks and over neighbours, whose averages take effect one outer step late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/compression.hpp"
#include "tests/bodies/optimizers/outer/outer_runs.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

DistributedOptimizerOptions late_options(optimizers::AlgorithmName algorithm, int size,
                                         Numbers numbers = {}) {
  numbers.merge(Numbers{{"outer_delay", 1}});
  return outer_options(algorithm, std::move(numbers),
                       topology::static_schedule(topology::ring(size)));
}

/// A training under way, by SGD.
struct LateRun {
  LateRun(Context& context, const DistributedOptimizerOptions& options, int seed)
      : problem(LeastSquares::of_rank(context.rank())),
        point(static_cast<std::uint64_t>(seed)),
        sgd(point.parameters(), kOuterRate),
        optimizer(context.shared_from_this(), sgd, point, options) {}

  void steps(int count) {
    for (int step = 0; step < count; ++step) {
      train(optimizer, point, problem);
    }
  }

  LeastSquares problem;
  Point point;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

TEST(LateOuterSteps, FollowTheirEquation) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    const int size = context.size();
    for (const char* const name : {"diloco", "gossip_diloco"}) {
      const at::Tensor a = dense(std::string(name) == "diloco" ? topology::fully_connected(size)
                                                               : topology::ring(size));
      const auto found = run_outer_steps(context, late_options(name, size));
      OuterMomentumOfAll momentum{.beta = 0.9, .is_nesterov = true};
      at::Tensor theta = starting_points(size, Start::Different);
      at::Tensor x = theta;
      at::Tensor sent;
      for (int step = 0; step < kInner * kOuter; ++step) {
        x = x - kOuterRate * gradients(x);
        if (step % kInner == kInner - 1) {
          if (sent.defined()) {
            theta = momentum.next(theta, 0.7 * (theta - a.mm(sent)));
            x = theta + x - sent;
          }
          sent = x;
        }
        EXPECT_CLOSE(found[static_cast<std::size_t>(step)], x[context.rank()]) << name << step;
      }
    }
  });
}

/// The others make their outer step only after rank 0 has made all local steps up to its next one.
TEST(LateOuterSteps, LetLocalStepsGoOn) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const char* const name : {"diloco", "gossip_diloco"}) {
      const std::shared_ptr<Context> signal = context.duplicate();
      LateRun run(context, late_options(name, context.size()), 0);
      if (context.rank() == 0) {
        run.steps(2 * kInner - 1);
        ops::barrier(*signal);
      } else {
        ops::barrier(*signal);
        run.steps(2 * kInner - 1);
      }
      run.steps(1);
      run.optimizer.finish();
    }
  });
}

/// Each local step of each rank counts once in the mean.
TEST(LateOuterSteps, KeepAllLocalSteps) {
  on_ranks(some_ranks(1), [](Context& context) {
    const int size = context.size();
    const at::NoGradGuard no_grad;
    for (const char* const name : {"diloco", "gossip_diloco"}) {
      auto options =
          late_options(name, size, {{"outer_learning_rate", 1.0}, {"outer_momentum", 0.0}});
      Bag bag;
      const at::Tensor x = bag.add("x", at::zeros({3}, at::kDouble));
      x.mutable_grad() = at::ones({3}, at::kDouble) * (1.0 + context.rank());
      torch::optim::SGD sgd(bag.parameters(), 1.0);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag, options);
      constexpr int kSteps = kInner * 4;
      for (int step = 0; step < kSteps; ++step) {
        optimizer.step();
      }
      optimizer.finish();
      at::Tensor mean = x.clone();
      ops::allreduce(context, optimizers::view_of(mean));
      EXPECT_EQ(
          difference(mean, at::full({3}, -kSteps * (1.0 + mean_rank(context)), at::kDouble), 1e-12),
          "")
          << name;
    }
  });
}

/// An average under way takes effect before it is saved, and a run goes on from there with the same bits.
TEST(LateOuterSteps, GoOnFromWhatIsSaved) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto options = late_options("diloco", context.size());
    LateRun run(context, options, context.rank());
    run.steps(2 * kInner + 1);
    run.optimizer.drain();
    optimizers::NamedTensors carried;
    for (const auto& [name, tensor] : run.optimizer.carried()) {
      carried.push_back({name, tensor.clone()});
    }
    LateRun resumed(context, options, 0);
    {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < run.point.parameters().size(); ++i) {
        resumed.point.parameters()[i].copy_(run.point.parameters()[i]);
      }
    }
    resumed.optimizer.resume(carried, run.optimizer.step_count(), run.optimizer.round_count());
    run.steps(2 * kInner);
    resumed.steps(2 * kInner);
    EXPECT_SAME(resumed.point.x(), run.point.x());
  });
}

/// Rank 1 hears of it in its next outer step, which is made all the same.
TEST(LateOuterSteps, AreHeardOfWhenTheyFail) {
  on_ranks(exactly(2), [](Context& context) {
    LateRun run(context, late_options("diloco", 2), 0);
    run.steps(kInner - 1);
    if (context.rank() == 0) {
      run.optimizer.refuse_step("as the test has it");
      run.steps(kInner);
    } else {
      run.steps(kInner);
      EXPECT_THAT(error_of<PeerFailure>([&] { run.steps(kInner); }),
                  HasSubstr("as the test has it"));
    }
    run.steps(kInner);
    run.optimizer.finish();
  });
}

TEST(LateOuterSteps, OfCodesAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const char* const name : {"diloco", "gossip_diloco"}) {
      auto options = late_options(name, context.size());
      options.compression = ops::compression_named("int8");
      EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                  HasSubstr("outer_delay: " + std::string(name) + " expects 0 with a compression"));
    }
    auto options = late_options("diloco", context.size());
    options.compression = ops::compression_named("int8");
    options.schedule.reset();
    options.plans = [&](std::int64_t /*round*/) {
      return NeighborPlan::alone(context.rank(), context.size());
    };
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("outer_delay: diloco expects 0 with a compression"));
    EXPECT_THAT(
        error_of<InvalidArgument>([&] {
          run_outer_steps(context, late_options("diloco", context.size(), {{"outer_delay", 2}}));
        }),
        HasSubstr("outer_delay: expected from 0 to below 2, found 2"));
  });
}

}  // namespace
}  // namespace bluefog::testing
