// Outer steps whose differences travel in codes, against their equations in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/bodies/optimizers/codes/coded_runs.hpp"
#include "tests/bodies/optimizers/outer/outer_runs.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

DistributedOptimizerOptions coded_outer(optimizers::AlgorithmName algorithm,
                                        const std::string& code, Numbers numbers = {}) {
  auto options = outer_options(algorithm, std::move(numbers));
  options.bucket_bytes = 0;  // all values in one code
  options.compression = ops::compression_named(code);
  return options;
}

/// Local steps of all ranks; the first outer one is the mean, those after it are of codes.
void expect_coded_steps(Context& context, const DistributedOptimizerOptions& options, double rate,
                        double decay, OuterMomentumOfAll momentum) {
  const auto found = run_outer_steps(context, options);
  at::Tensor x = starting_points(context.size(), Start::Different);
  at::Tensor theta = x;
  at::Tensor left = at::zeros_like(x);
  for (std::size_t step = 0; step < found.size(); ++step) {
    x = x - kOuterRate * gradients(x);
    if (step % kInner == kInner - 1) {
      if (step == kInner - 1) {
        theta = x.mean(0, true).expand_as(x);
      } else {
        const at::Tensor whole = decay * left + rate * (theta - x);
        const at::Tensor sent = at::zeros_like(whole);
        for (std::int64_t i = 0; i < sent.size(0); ++i) {
          sent[i] = decoded_code(*options.compression, whole[i]);
        }
        left = whole - sent;
        theta = momentum.next(theta, sent.mean(0, true).expand_as(x));
      }
      x = theta;
    }
    EXPECT_CLOSE(found[step], x[context.rank()]);
  }
}

TEST(CodedOuterSteps, FollowTheirEquations) {
  on_ranks(ranks_of_outer_steps(), [](Context& context) {
    expect_coded_steps(context, coded_outer("sparse_loco", "topk:32"), 1.0, 0.999, {});
    expect_coded_steps(
        context,
        coded_outer("sparse_loco", "int4", {{"outer_learning_rate", 0.7}, {"error_decay", 0.5}}),
        0.7, 0.5, {});
    expect_coded_steps(context, coded_outer("diloco", "topk:32"), 0.7, 1.0,
                       {.beta = 0.9, .is_nesterov = true});
    expect_coded_steps(context, coded_outer("diloco", "topk:32", {{"error_decay", 0.0}}), 0.7, 0.0,
                       {.beta = 0.9, .is_nesterov = true});
  });
}

/// A code of all values leaves averages of the local steps.
TEST(CodedOuterSteps, InACodeOfAllValuesAreLocalSgd) {
  on_ranks(some_ranks(), [](Context& context) {
    const auto found = run_outer_steps(context, coded_outer("sparse_loco", "topk:4096"));
    const auto expected = run_outer_steps(context, outer_options("local_sgd"));
    for (std::size_t step = 0; step < found.size(); ++step) {
      EXPECT_EQ(difference(found[step], expected[step], 1e-6), "");
    }
  });
}

/// All ranks have the same θ after each outer step, to the bit.
TEST(CodedOuterSteps, LeaveTheSameModelOnAllRanks) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto found = run_outer_steps(context, coded_outer("sparse_loco", "sign"));
    for (int outer = 1; outer <= kOuter; ++outer) {
      const at::Tensor& own = found[static_cast<std::size_t>(outer * kInner - 1)];
      at::Tensor sum = own.clone();
      ops::AllreduceOptions options;
      options.reduction = ops::Reduction::Max;
      ops::allreduce(context, optimizers::view_of(sum), options);
      EXPECT_SAME(own, sum);
    }
  });
}

/// One of eight values in each message.
TEST(CodedOuterSteps, ReachTheMinimumByErrorFeedbackAlone) {
  on_ranks(exactly(4), [](Context& context) {
    const auto distance_with = [&](double decay) {
      auto options = coded_outer("sparse_loco", "topk:1", {{"error_decay", decay}});
      options.num_steps_per_communication = 1;
      const at::Tensor end = run_outer_steps(context, options, Start::Equal, 1500, 0.01).back();
      return (end - minimiser(context.size())).abs().max().item<double>();
    };
    EXPECT_LT(distance_with(1.0), 0.1 * distance_with(0.0));
    EXPECT_GT(distance_with(0.0), 1e-2);
  });
}

void train_once(DistributedOptimizer& optimizer, const Point& point, Context& context) {
  train(optimizer, point, LeastSquares::of_rank(context.rank()));
}

/// Training whose every step is an outer one, by `sparse_loco`.
struct SparseRun {
  explicit SparseRun(Context& context)
      : sgd(point.parameters(), kOuterRate),
        optimizer(context.shared_from_this(), sgd, point, options()) {}

  static DistributedOptimizerOptions options() {
    auto options = coded_outer("sparse_loco", "topk:32");
    options.num_steps_per_communication = 1;
    return options;
  }

  Point point{0};
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

/// A step that one rank refuses leaves what all have made, and what codes have left.
TEST(CodedOuterSteps, ThatFailLeaveTheLocalSteps) {
  on_ranks(some_ranks(2), [](Context& context) {
    SparseRun run(context);
    const Point& point = run.point;
    DistributedOptimizer& optimizer = run.optimizer;
    train_once(optimizer, point, context);
    train_once(optimizer, point, context);
    const at::Tensor start = point.x().detach().clone();
    if (context.rank() == 0) {
      optimizer.refuse_step("as the test has it");
      EXPECT_SAME(point.x(), start);
    } else {
      EXPECT_ANY_THROW(train_once(optimizer, point, context));
      EXPECT_CLOSE(point.x(),
                   start - kOuterRate * LeastSquares::of_rank(context.rank()).gradient(start));
    }
    train_once(optimizer, point, context);  // all have the same θ still
  });
}

TEST(CodedOuterSteps, FromModelsThatDifferAreAnErrorUntilARestart) {
  on_ranks(some_ranks(2), [](Context& context) {
    SparseRun run(context);
    const Point& point = run.point;
    DistributedOptimizer& optimizer = run.optimizer;
    train_once(optimizer, point, context);
    for (const auto& [name, tensor] : optimizer.algorithm_state()) {
      if (name == "outer start of bucket 0" && context.rank() == 1) {
        tensor.narrow(0, 0, 1).add_(1);
      }
    }
    for (int times = 0; times < 2; ++times) {
      EXPECT_THAT(error_of<StateError>([&] { train_once(optimizer, point, context); }),
                  AllOf(HasSubstr("found that rank 1 goes on from another one than rank 0"),
                        HasSubstr("`restart` on all ranks")));
    }
    optimizer.restart();
    for (int times = 0; times < 3; ++times) {
      train_once(optimizer, point, context);
    }
  });
}

TEST(CodedOuterSteps, OutOfBoundsAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto why = [&](const DistributedOptimizerOptions& options) {
      return error_of<Error>([&] { run_outer_steps(context, options); });
    };
    EXPECT_THAT(why(coded_outer("sparse_loco", "int4", {{"error_decay", 1.5}})),
                HasSubstr("error_decay: expected from 0 to 1, found 1.5"));
    EXPECT_THAT(why(outer_options("diloco", {{"error_decay", 0.5}})),
                HasSubstr("error_decay: expected a compression, whose it is, found none"));
    EXPECT_THAT(why(coded_outer("streaming_diloco", "int4")),
                HasSubstr("gossip_diloco or sparse_loco, found streaming_diloco"));
    EXPECT_THAT(why(coded_outer("sparse_loco", context.rank() == 0 ? "int4" : "int8")),
                HasSubstr("compression int"));
    Bag bag;
    bag.add("x", at::ones({3}, at::kBFloat16));
    torch::optim::SGD sgd(bag.parameters(), 0.1);
    for (const char* const name : {"sparse_loco", "diloco"}) {
      EXPECT_THAT(error_of<Error>([&] {
                    const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                                         coded_outer(name, "int8"));
                  }),
                  HasSubstr("float32 or float64"));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
