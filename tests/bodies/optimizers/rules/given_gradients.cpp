// Gradients that a program sets itself, under gradient all-reduce.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "ops/compression.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kGivenStep = 0.25;

DistributedOptimizerOptions given_options(const std::string& code = {}) {
  DistributedOptimizerOptions options;
  options.algorithm = AlgorithmName::GradientAllreduce;
  options.bucket_bytes = 32;  // a bucket for each parameter of `Point`
  if (!code.empty()) {
    options.compression = ops::compression_named(code);
  }
  return options;
}

void give(const at::Tensor& parameter, double value) {
  parameter.mutable_grad() = at::full_like(parameter, value);
}

// The mean of rank + 1.
double mean_of(const Context& context) { return (context.size() + 1) / 2.0; }

TEST(GivenGradients, CountInAStepWithoutAPass) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const std::string code : {"", "bfloat16"}) {
      const Point point(0);
      const at::Tensor before = point.x().detach().clone();
      torch::optim::SGD sgd(point.parameters(), kGivenStep);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, given_options(code));
      for (int step = 1; step <= 2; ++step) {
        optimizer.zero_grad();
        for (const at::Tensor& parameter : point.parameters()) {
          give(parameter, context.rank() + 1.0);
        }
        optimizer.step();
        EXPECT_CLOSE(point.x(), before - step * kGivenStep * mean_of(context)) << code;
      }
    }
  });
}

TEST(GivenGradients, CountWhereAPassFindsThem) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    const at::Tensor first = point.first.detach().clone();
    const at::Tensor second = point.second.detach().clone();
    const at::Tensor third = point.third.detach().clone();
    torch::optim::SGD sgd(point.parameters(),
                          torch::optim::SGDOptions(kGivenStep).weight_decay(0.5));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, given_options());
    optimizer.zero_grad(/*set_to_none=*/false);
    if (context.rank() == 0) {  // zeros of the others
      give(point.second, context.size() * 2.0);
    }
    ((context.rank() + 1.0) * point.first).sum().backward();
    optimizer.step();
    EXPECT_CLOSE(point.first, first - kGivenStep * (mean_of(context) + 0.5 * first));
    EXPECT_CLOSE(point.second, second - kGivenStep * (2.0 + 0.5 * second));
    EXPECT_TRUE(at::equal(point.third, third)) << "without a gradient on any rank";
  });
}

TEST(GivenGradients, AreRefusedBehindThePass) {
  on_ranks(some_ranks(), [](Context& context) {
    const Point point(0);
    const at::Tensor before = point.x().detach().clone();
    torch::optim::SGD sgd(point.parameters(), kGivenStep);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, given_options());
    optimizer.zero_grad();
    point.first.sum().backward();
    give(point.second, context.rank());
    EXPECT_THAT(error_of<StateError>([&] { optimizer.step(); }),
                AllOf(HasSubstr("rank " + std::to_string(context.rank())), HasSubstr("second"),
                      HasSubstr("set behind it")));
    EXPECT_TRUE(at::equal(point.x(), before));
    optimizer.zero_grad();  // another step begins
    point.x().sum().backward();
    optimizer.step();
    EXPECT_CLOSE(point.x(), before - kGivenStep);
  });
}

}  // namespace
}  // namespace bluefog::testing
