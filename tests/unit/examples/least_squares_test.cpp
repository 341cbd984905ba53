#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/least_squares/methods.hpp"
#include "tests/unit/examples/ranks_as_threads.hpp"

namespace bluefog::examples {
namespace {

constexpr std::int64_t kSteps = 600;

/// The error that remains after many steps.
double bias(Context& context, const char* algorithm, double step_size) {
  const LeastSquaresPart part = make_part({40, 5, 1.0}, context.rank(), 3);
  const Eigen::VectorXd solution = minimiser(context, part);
  const double smooth = smoothness(context, part);
  return run_method(context, {algorithm, "ring"}, part, solution, step_size / smooth, kSteps)
      .back();
}

TEST(LeastSquaresTest, PartsDifferAndDependOnTheirArgumentsAlone) {
  const LeastSquaresPart part = make_part({40, 5, 1.0}, 1, 3);
  EXPECT_EQ(part.a, make_part({40, 5, 1.0}, 1, 3).a);
  EXPECT_EQ(part.b, make_part({40, 5, 1.0}, 1, 3).b);
  EXPECT_NE(part.a, make_part({40, 5, 1.0}, 2, 3).a);
  EXPECT_NE(part.b, make_part({40, 5, 1.0}, 1, 4).b);
  EXPECT_EQ(part.a.rows(), 40);
  EXPECT_EQ(part.a.cols(), 5);
}

TEST(LeastSquaresTest, GradientsSumToZeroAtTheMinimiser) {
  on_ranks(3, [](Context& context) {
    const LeastSquaresPart part = make_part({40, 5, 1.0}, context.rank(), 3);
    const Eigen::VectorXd solution = minimiser(context, part);
    EXPECT_GT(part.gradient(solution).norm(), 0.1);
    EXPECT_LT(run_method(context, {"gradient_allreduce"}, part, solution, 0.1, 1000).back(), 1e-12);
  });
}

TEST(LeastSquaresTest, BiasOfAtcIsSmallerThanThatOfAwcAndBothShrinkWithTheStep) {
  on_ranks(4, [](Context& context) {
    const double atc = bias(context, "atc", 0.1);
    const double awc = bias(context, "awc", 0.1);
    EXPECT_GT(atc, 1e-3);
    EXPECT_LT(atc, 0.6 * awc);
    EXPECT_LT(awc, 0.2);
    // The bias is of order γ: half the step leaves about half of it.
    EXPECT_NEAR(bias(context, "atc", 0.05) / atc, 0.5, 0.05);
    EXPECT_NEAR(bias(context, "awc", 0.05) / awc, 0.5, 0.05);
  });
}

/// The step size is one at which ATC and AWC keep a bias.
TEST(LeastSquaresTest, CorrectedAlgorithmsHaveNone) {
  on_ranks(4, [](Context& context) {
    for (const char* algorithm : {"extra", "exact-diffusion", "gradient-tracking"}) {
      EXPECT_LT(bias(context, algorithm, 0.1), 1e-8) << algorithm;
    }
  });
}

TEST(LeastSquaresTest, EveryRankGetsTheSameErrors) {
  on_ranks(2, [](Context& context) {
    const LeastSquaresPart part = make_part({40, 5, 1.0}, context.rank(), 3);
    const auto errors = run_method(context, {"atc"}, part, minimiser(context, part), 0.1, 3);
    ASSERT_EQ(errors.size(), 3U);
    EXPECT_LT(errors[2], errors[0]);
  });
}

}  // namespace
}  // namespace bluefog::examples
