// Backward passes that hooks begin inside of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <stdexcept>

#include "bluefog_cpp/error.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kInsideStep = 0.05;

DistributedOptimizerOptions inside_options(const Context& context, AlgorithmName algorithm) {
  DistributedOptimizerOptions options = full_averaging(context, algorithm);
  options.bucket_bytes = 32;  // a bucket for each parameter of `Point`
  options.step_in_backward = algorithm == AlgorithmName::AdaptThenCombine;
  return options;
}

/// ½ ‖3 x‖², of which a pass inside adds the gradient of ‖x‖² before the outer one reaches x.
void run_passes(const Point& point, bool fails = false) {
  const at::Tensor seed = at::ones({1}, at::kDouble).requires_grad_();
  seed.register_hook([&point, fails](const at::Tensor& gradient) {
    const torch::AutoGradMode grad_mode(true);
    point.x().square().sum().backward();
    if (fails) {
      throw std::runtime_error("no gradient");
    }
    return gradient;
  });
  // The seed's part of the graph was made last, and so it runs first.
  const at::Tensor own = 4.5 * point.x().square().sum();
  (own + 0.0 * seed.sum()).backward();
}

constexpr double kGradientOfX = 11.0;

at::Tensor gradient_of(const Point& point) {
  return at::cat(
      {point.first.grad().flatten(), point.second.grad().flatten(), point.third.grad().flatten()});
}

TEST(PassesInsidePasses, CountWithTheOuterOne) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const auto algorithm : {AlgorithmName::GradientAllreduce, AlgorithmName::AdaptThenCombine,
                                 AlgorithmName::AdaptWithCombine}) {
      const Point point(static_cast<std::uint64_t>(context.rank()));
      torch::optim::SGD sgd(point.parameters(), kInsideStep);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                     inside_options(context, algorithm));
      const at::Tensor x = starting_points(context.size(), Start::Different);
      optimizer.zero_grad();
      run_passes(point);
      optimizer.step();
      optimizer.drain();
      const at::Tensor step = kInsideStep * kGradientOfX * x;
      const at::Tensor expected = algorithm == AlgorithmName::GradientAllreduce
                                      ? x - step.mean(0, true)
                                      : (x - step).mean(0, true).expand_as(x);
      EXPECT_CLOSE(point.x(), expected[context.rank()]);
      EXPECT_EQ(optimizer.round_count(), 1);
    }
  });
}

TEST(PassesInsidePasses, MeansAreThereAtTheEndOfTheOuterOne) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), kInsideStep);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   inside_options(context, AlgorithmName::GradientAllreduce));
    const at::Tensor means =
        kGradientOfX * starting_points(context.size(), Start::Different).mean(0);
    for (int pass = 0; pass < 2; ++pass) {
      optimizer.zero_grad();
      run_passes(point);
      EXPECT_CLOSE(gradient_of(point), means);
      optimizer.refuse_step("its means were all that was wanted");
    }
  });
}

TEST(PassesInsidePasses, OneThatFailsLeavesNothingToThePassAfterIt) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), kInsideStep);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   inside_options(context, AlgorithmName::GradientAllreduce));
    EXPECT_THAT(error_of<std::runtime_error>([&] { run_passes(point, true); }),
                HasSubstr("no gradient"));
    optimizer.zero_grad();
    run_passes(point);
    const at::Tensor means =
        kGradientOfX * starting_points(context.size(), Start::Different).mean(0);
    EXPECT_CLOSE(gradient_of(point), means);
    optimizer.step();
  });
}

TEST(PassesInsidePasses, OneThatComesBackToAParameterIsRefusedOnAllRanks) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kInsideStep);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   inside_options(context, AlgorithmName::GradientAllreduce));
    if (context.rank() == 0) {
      EXPECT_THAT(error_of<StateError>([&] {
                    const at::Tensor seed = at::ones({1}, at::kDouble).requires_grad_();
                    seed.register_hook([&point](const at::Tensor& gradient) {
                      const torch::AutoGradMode grad_mode(true);
                      point.x().square().sum().backward();
                      return gradient;
                    });
                    const at::Tensor early = 0.0 * seed.sum();
                    (early + point.x().square().sum()).backward();
                  }),
                  HasSubstr("its gradient changed after it had been sent"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { point.x().square().sum().backward(); }),
                  HasSubstr("its gradient changed after it had been sent"));
    }
    optimizer.zero_grad();
    point.x().sum().backward();
    optimizer.step();
    EXPECT_EQ(optimizer.step_count(), 2);
  });
}

TEST(PassesInsidePasses, AGradientWithAGraphIsRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kInsideStep);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                   inside_options(context, AlgorithmName::GradientAllreduce));
    EXPECT_THAT(error_of<UnsupportedError>([&] {
                  point.x().square().sum().backward({}, std::nullopt, /*create_graph=*/true);
                }),
                HasSubstr("expected a gradient without a graph"));
    optimizer.zero_grad();
  });
}

}  // namespace
}  // namespace bluefog::testing
