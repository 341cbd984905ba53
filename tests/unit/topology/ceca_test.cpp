#include "topology/ceca.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <numeric>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"

namespace bluefog::topology {
namespace {

std::vector<CecaPorts> variants_for(int size) {
  return size % 2 == 0 ? std::vector{CecaPorts::Two, CecaPorts::One} : std::vector{CecaPorts::Two};
}

/// All steps on (d, s) as one matrix.
Eigen::MatrixXd stacked_period(const Ceca& ceca) {
  Eigen::MatrixXd product = Eigen::MatrixXd::Identity(2 * ceca.size(), 2 * ceca.size());
  for (int step = 0; step < std::ssize(ceca.steps()); ++step) {
    product = testing::dense(ceca.stacked_matrix(step)) * product;
  }
  return product;
}

TEST(Ceca, AveragesExactlyForAnySize) {
  for (int size = 2; size <= 64; ++size) {
    for (const CecaPorts ports : variants_for(size)) {
      const Ceca ceca(size, ports);
      EXPECT_EQ(std::ssize(ceca.steps()), std::bit_width(static_cast<unsigned>(size - 1)));
      const Eigen::MatrixXd product = stacked_period(ceca);
      const Eigen::MatrixXd from_own = product.topLeftCorner(size, size);
      ASSERT_LE(testing::distance_from_average(from_own), 1e-14) << size;
      // The values of s before the period have no influence on anything.
      ASSERT_EQ(product.rightCols(size).cwiseAbs().maxCoeff(), 0.0) << size;
      // s_i is the mean of the others.
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_NEAR(product(size + rank, rank), 0.0, 1e-14) << size;
      }
    }
  }
}

TEST(Ceca, ApplyIsTheStackedMatrix) {
  for (const int size : {1, 2, 6, 11, 24}) {
    for (const CecaPorts ports : variants_for(size)) {
      const Ceca ceca(size, ports);
      std::vector<double> x(2 * size);
      std::iota(x.begin(), x.end(), 1.0);
      for (int step = 0; step < std::ssize(ceca.steps()); ++step) {
        std::vector<double> expected(x.size());
        ceca.stacked_matrix(step).apply(x, expected);
        const std::span<double> both(x);
        ceca.apply(step, both.first(size), both.last(size));
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_NEAR(x[i], expected[i], 1e-12) << size;
        }
      }
    }
  }
}

TEST(Ceca, OneMessagePerRankAndStep) {
  for (const int size : {1, 2, 7, 12, 64}) {
    for (const CecaPorts ports : variants_for(size)) {
      const Ceca ceca(size, ports);
      const Schedule schedule = ceca.exchange();
      testing::expect_plans_fit(schedule, schedule.period_steps());
      for (int step = 0; step < std::ssize(ceca.steps()); ++step) {
        for (int rank = 0; rank < size; ++rank) {
          const auto plan = schedule.plan_for(rank, step);
          EXPECT_EQ(plan->self_weight, 0.0);
          ASSERT_EQ(plan->sources.size(), 1U);
          EXPECT_EQ(plan->sources.front(), (WeightedRank{ceca.source(rank, step), 1.0}));
          EXPECT_EQ(plan->destinations.size(), 1U);
          if (ports == CecaPorts::One) {
            EXPECT_EQ(plan->destinations.front().rank, plan->sources.front().rank);
          }
        }
      }
    }
  }
}

TEST(Ceca, PowersOfTwoAreOnePeerExponential) {
  const Ceca ceca(16);
  const Schedule exponential = one_peer_exponential(16);
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(ceca.steps()[step].sends, CecaStep::Sends::WithOwn);
    EXPECT_EQ(ceca.steps()[step].own, 0.5);
    EXPECT_EQ(ceca.source(5, step), exponential.plan_for(5, step)->sources.front().rank);
  }
}

TEST(Ceca, StepsOfSixRanks) {
  // n − 1 = 101 in binary: send d, s, d; others known: 0, 1, 2, 5.
  const std::vector<CecaStep> expected{
      {.sends = CecaStep::Sends::WithOwn, .distance = 1, .own = 0.5, .others = 0.0},
      {.sends = CecaStep::Sends::WithoutOwn, .distance = 1, .own = 2.0 / 3.0, .others = 0.5},
      {.sends = CecaStep::Sends::WithOwn, .distance = 3, .own = 0.5, .others = 0.4}};
  EXPECT_EQ(Ceca(6).steps(), expected);
}

TEST(Ceca, WhatSHeldBeforeIsNotRead) {
  const Ceca ceca(5);
  std::vector<double> d{1, 2, 3, 4, 5};
  std::vector<double> s(5, std::numeric_limits<double>::quiet_NaN());
  for (int step = 0; step < 3; ++step) {
    ceca.apply(step, d, s);
  }
  for (const double value : d) {
    EXPECT_NEAR(value, 3.0, 1e-15);
  }
}

TEST(Ceca, RefusesWrongArguments) {
  EXPECT_THROW(Ceca(0), InvalidArgument);
  EXPECT_THROW(Ceca(5, CecaPorts::One), InvalidArgument);
  const Ceca ceca(6);
  std::vector<double> five(5);
  std::vector<double> six(6);
  EXPECT_THROW((void)ceca.source(6, 0), InvalidArgument);
  EXPECT_THROW((void)ceca.source(0, 3), InvalidArgument);
  EXPECT_THROW((void)ceca.stacked_matrix(-1), InvalidArgument);
  EXPECT_THROW(ceca.apply(0, six, five), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
