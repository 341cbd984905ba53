#include "topology/analysis/least_eigenvalue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "bluefog_cpp/error.hpp"
#include "topology/lazy_mixing.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::topology {
namespace {

using ::testing::HasSubstr;

void expect_least(const MixingMatrix& matrix, double expected) {
  const EigenvalueEstimate found = least_eigenvalue(matrix);
  EXPECT_TRUE(found.converged);
  EXPECT_NEAR(found.value, expected, 1e-11);
}

TEST(LeastEigenvalue, OfGraphsWithKnownSpectra) {
  expect_least(MixingMatrix::identity(5), 1.0);
  expect_least(MixingMatrix::identity(1), 1.0);
  expect_least(fully_connected(6), 0.0);
  expect_least(ring(4), -1.0 / 3.0);
  expect_least(ring(5), (1.0 + 2.0 * std::cos(0.8 * std::numbers::pi)) / 3.0);
  expect_least(hypercube(8), -0.5);
  expect_least(star(7), 0.0);
}

/// Beyond the dense solver's size.
TEST(LeastEigenvalue, OfLongRings) {
  expect_least(MixingMatrix::identity(500), 1.0);
  expect_least(ring(1000), -1.0 / 3.0);
  expect_least(ring(1001), (1.0 + 2.0 * std::cos(1000.0 / 1001.0 * std::numbers::pi)) / 3.0);
  expect_least(MixingMatrix::from_pattern({.shape = {600}, .entries = {{1, .5}, {599, .5}}}), -1.0);
}

TEST(LeastEigenvalue, RefusesWhatHasNone) {
  EXPECT_THROW((void)least_eigenvalue(exponential(5)), InvalidArgument);
  try {
    (void)least_eigenvalue(
        MixingMatrix::from_rows({{{0, 0.5}, {1, 0.25}}, {{0, 0.25}, {1, 0.75}}}));
    FAIL() << "accepted a row that sums to 0.75";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("row 0 sums to 0.75"));
  }
}

TEST(Lazy, IsTheMeanWithTheIdentity) {
  // A rank without a self weight gets one; stored as a pattern and as rows.
  const MixingMatrix swap = MixingMatrix::from_pattern({.shape = {2}, .entries = {{1, 1.0}}});
  EXPECT_EQ(lazy(swap), fully_connected(2));
  EXPECT_NE(lazy(swap).pattern(), nullptr);
  const MixingMatrix rows = MixingMatrix::from_rows({{{1, 1.0}}, {{0, 0.5}, {1, 0.5}}});
  EXPECT_EQ(lazy(rows, 0.25),
            MixingMatrix::from_rows({{{0, 0.25}, {1, 0.75}}, {{0, 0.375}, {1, 0.625}}}));
  EXPECT_EQ(lazy(rows, 0.0), rows);
  expect_least(lazy(hypercube(8), 0.4), 0.4 - 0.6 * 0.5);
}

TEST(Lazy, RefusesSharesThatAreNone) {
  EXPECT_THROW((void)lazy(ring(4), 1.0), InvalidArgument);
  EXPECT_THROW((void)lazy(ring(4), -0.1), InvalidArgument);
  EXPECT_THROW((void)lazy(ring(4), std::nan("")), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
