// Ranks whose program cannot go on, and the others, who do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/allreduce.hpp"
#include "optimizers/algorithm_name.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr int kGivers = 3;
constexpr const char* kReason = "a bad batch";

at::Tensor mean_of_all_points() {
  at::Tensor mean = at::zeros_like(Point(0).x());
  for (int rank = 0; rank < kGivers; ++rank) {
    mean += Point(static_cast<std::uint64_t>(rank)).x() / kGivers;
  }
  return mean;
}

/// The lost rank and why, as a rank that goes on knows it.
void expect_loss(const DistributedOptimizer& optimizer, int rank) {
  const Membership& members = optimizer.context().membership();
  ASSERT_EQ(members.lost.size(), 1U);
  EXPECT_EQ(members.lost.front().rank, rank);
  EXPECT_THAT(members.lost.front().cause, HasSubstr(kReason));
}

/// Where steps move nothing but by averages, whatever part a rank has in them shows in the mean.
void expect_whole_mean(AlgorithmName algorithm, int gone, int rounds_apart) {
  SCOPED_TRACE(algorithm.text());
  const at::Tensor mean = mean_of_all_points();
  const auto body = [&](Context& context) {
    const int own = context.rank();
    const Point point(static_cast<std::uint64_t>(own));
    torch::optim::SGD sgd(point.parameters(), 0.0);
    DistributedOptimizerOptions options;
    options.algorithm = algorithm;
    options.num_steps_per_communication = rounds_apart;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    const LeastSquares problem = LeastSquares::of_rank(own);
    if (own == gone) {
      EXPECT_TRUE(optimizer.give_up(kReason));
      EXPECT_TRUE(optimizer.has_left());
      EXPECT_TRUE(optimizer.give_up(kReason));
      EXPECT_THROW(optimizer.step(), StateError);
      return;
    }
    while (optimizer.context().membership().lost.empty()) {
      train(optimizer, point, problem);
    }
    expect_loss(optimizer, gone);
    EXPECT_CLOSE(point.x(), mean);
  };
  with_applicants(kGivers, body, 0, {});
}

TEST(GivingUp, TheMeanHasTheValuesOfTheRankThatGoes) {
  for (const int gone : {0, 1}) {
    expect_whole_mean(AlgorithmName::AdaptThenCombine, gone, 1);
  }
  expect_whole_mean(AlgorithmName::AdaptWithCombine, 2, 1);
  expect_whole_mean(AlgorithmName::GradientTracking, 1, 1);
  expect_whole_mean(AlgorithmName::ExactDiffusion, 1, 1);
  expect_whole_mean(AlgorithmName::LocalSgd, 1, 20);
}

// Its own gradients are those of a program that has failed.
TEST(GivingUp, GradientsOfTheRankCountAsZeros) {
  const auto body = [](Context& context) {
    const bool goes = context.rank() == 1;
    const Point point(7);
    const at::Tensor before = point.x().detach().clone();
    torch::optim::SGD sgd(point.parameters(), 1.0);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::GradientAllreduce;
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    for (const at::Tensor& part : point.parameters()) {
      part.mutable_grad() = at::full_like(part, std::numeric_limits<double>::quiet_NaN());
    }
    if (goes) {
      EXPECT_TRUE(optimizer.give_up(kReason));
      return;
    }
    while (optimizer.context().membership().lost.empty()) {
      optimizer.zero_grad();
      point.x().sum().backward();
      optimizer.step();
    }
    const double step = 2.0 / kGivers;
    const auto steps = static_cast<double>(optimizer.step_count());
    EXPECT_CLOSE(point.x(), before - step * steps);
  };
  with_applicants(kGivers, body, 0, {});
}

TEST(GivingUp, ValuesThatAreNotFiniteAreKeptFromTheOthers) {
  const auto body = [](Context& context) {
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), 0.01);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, {});
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    if (context.rank() == 1) {
      const torch::NoGradGuard no_grad;
      point.first.fill_(std::numeric_limits<double>::infinity());
      EXPECT_FALSE(optimizer.give_up(kReason));
      EXPECT_FALSE(optimizer.has_left());
      EXPECT_THROW(optimizer.step(), StateError);
      return;
    }
    while (optimizer.context().membership().lost.empty()) {
      train(optimizer, point, problem);
    }
    expect_loss(optimizer, 1);
    EXPECT_TRUE(at::isfinite(point.x()).all().item<bool>());
  };
  with_applicants(kGivers, body, 0, {});
}

// The others' step fails with it; they go on once it has ended.
TEST(GivingUp, OthersGoOnWithoutARankWhoseStepFails) {
  for (const auto algorithm : {AlgorithmName::AdaptThenCombine, AlgorithmName::AdaptWithCombine,
                               AlgorithmName::GradientTracking}) {
    SCOPED_TRACE(AlgorithmName(algorithm).text());
    const auto body = [&](Context& context) {
      const Point point(static_cast<std::uint64_t>(context.rank()));
      torch::optim::SGD sgd(point.parameters(), 0.01);
      DistributedOptimizerOptions options;
      options.algorithm = algorithm;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      train(optimizer, point, problem);
      if (context.rank() == 1) {
        const auto fails = []() -> at::Tensor { throw std::runtime_error(kReason); };
        EXPECT_THROW((void)optimizer.step(fails), std::runtime_error);
        EXPECT_FALSE(optimizer.give_up(kReason));
        return;
      }
      constexpr int kSteps = 6;  // a rank that was behind passes over some
      while (optimizer.step_count() < kSteps) {
        train(optimizer, point, problem);
      }
      expect_loss(optimizer, 1);
      EXPECT_EQ(optimizer.context().size(), kGivers - 1);
    };
    with_applicants(kGivers, body, 0, {});
  }
}

// The others are not in a step: what they make in its place is no mistake.
TEST(GivingUp, OthersInAnotherCallLoseTheRank) {
  const auto body = [](Context& context) {
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), 0.01);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, {});
    if (context.rank() == 1) {
      EXPECT_FALSE(optimizer.give_up(kReason));
      return;
    }
    double sum = 1.0;
    EXPECT_THROW(ops::allreduce(context, {.data = &sum, .count = 1, .dtype = Dtype::Float64}),
                 RankLostError);
    optimizer.shrink();
    expect_loss(optimizer, 1);
    EXPECT_EQ(optimizer.context().size(), kGivers - 1);
  };
  with_applicants(kGivers, body, 0, {});
}

TEST(GivingUp, DoesNothingWhereARankThatIsLostIsAnError) {
  on_ranks({.thread_counts = {2}, .layouts = {Layout::OneHost}}, [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), 0.01);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, {});
    EXPECT_FALSE(optimizer.give_up(kReason));
    optimizer.step();
    EXPECT_EQ(optimizer.step_count(), 1);
  });
}

}  // namespace
}  // namespace bluefog::testing
