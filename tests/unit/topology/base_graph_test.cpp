#include "topology/base_graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"

namespace bluefog::topology {
namespace {

/// Fewest factors of n that are at most `largest`, by trying all.
std::optional<int> cube_length(int size, int largest) {
  if (size == 1) {
    return 0;
  }
  std::optional<int> best;
  for (int factor = 2; factor <= std::min(size, largest); ++factor) {
    if (size % factor != 0) {
      continue;
    }
    const auto rest = cube_length(size / factor, largest);
    if (rest && (!best || *rest + 1 < *best)) {
      best = *rest + 1;
    }
  }
  return best;
}

/// Algorithm 2 of the paper, as a formula.
int simple_length(int size, int peers) {
  if (const auto cube = cube_length(size, peers + 1)) {
    return *cube;
  }
  int power = 0;
  int block = 1;
  while (block * (peers + 1) <= size) {
    block *= peers + 1;
    ++power;
  }
  return *cube_length(size / block * block, peers + 1) + 1 + power;
}

/// Algorithm 3 of the paper: the better of all ranks at once and its one split.
int paper_length(int size, int peers) {
  int smooth = 1;
  for (int divisor = 1; divisor <= size; ++divisor) {
    if (size % divisor == 0 && cube_length(divisor, peers + 1)) {
      smooth = divisor;
    }
  }
  return std::min(simple_length(size, peers),
                  simple_length(size / smooth, peers) + *cube_length(smooth, peers + 1));
}

int largest_degree(const Schedule& schedule) {
  std::size_t largest = 0;
  for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
    for (int rank = 0; rank < schedule.size(); ++rank) {
      const auto plan = schedule.plan_for(rank, step);
      largest = std::max({largest, plan->sources.size(), plan->destinations.size()});
    }
  }
  return static_cast<int>(largest);
}

TEST(BaseGraph, AveragesExactlyForAnySize) {
  for (int size = 2; size <= 64; ++size) {
    for (int peers = 1; peers <= 4; ++peers) {
      const Schedule schedule = base_graph(size, peers);
      ASSERT_LE(testing::distance_from_average(testing::dense_period(schedule)), 1e-12)
          << size << " ranks, " << peers << " peers";
      ASSERT_LE(largest_degree(schedule), peers) << size << " ranks, " << peers << " peers";
    }
  }
}

TEST(BaseGraph, SimpleAveragesExactlyForAnySize) {
  for (int size = 2; size <= 64; ++size) {
    for (int peers = 1; peers <= 4; ++peers) {
      const Schedule schedule = simple_base_graph(size, peers);
      ASSERT_LE(testing::distance_from_average(testing::dense_period(schedule)), 1e-12)
          << size << " ranks, " << peers << " peers";
      ASSERT_LE(largest_degree(schedule), peers) << size << " ranks, " << peers << " peers";
    }
  }
}

TEST(BaseGraph, TakesNoMoreStepsThanThePaper) {
  for (int size = 2; size <= 300; ++size) {
    for (int peers = 1; peers <= 4; ++peers) {
      const double bound = 2.0 * std::log(size) / std::log(peers + 1.0) + 2.0;
      ASSERT_EQ(simple_base_graph(size, peers).period_steps(), simple_length(size, peers)) << size;
      ASSERT_LE(base_graph(size, peers).period_steps(), paper_length(size, peers))
          << size << " ranks, " << peers << " peers";
      ASSERT_LE(static_cast<double>(base_graph(size, peers).period_steps()), bound + 1e-9) << size;
    }
  }
}

TEST(BaseGraph, LengthsThatThePaperShows) {
  EXPECT_EQ(simple_base_graph(5, 1).period_steps(), 5);
  EXPECT_EQ(simple_base_graph(6, 1).period_steps(), 5);
  EXPECT_EQ(base_graph(6, 1).period_steps(), 4);
  EXPECT_EQ(base_graph(25, 1).period_steps(), 9);
  EXPECT_EQ(base_graph(25, 4).period_steps(), 2);
  EXPECT_EQ(base_graph(64, 1).period_steps(), 6);
  EXPECT_EQ(base_graph(1, 3).period_steps(), 1);
  EXPECT_EQ(base_graph(7, 100).period_steps(), 1);
}

TEST(BaseGraph, PlansAreThoseOfTheMatrices) {
  for (const int size : {2, 5, 6, 7, 13, 22, 50}) {
    for (int peers = 1; peers <= 3; ++peers) {
      const Schedule schedule = base_graph(size, peers);
      testing::expect_plans_fit(schedule, schedule.period_steps());
      for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
        EXPECT_TRUE(schedule.mixing_matrix(step).is_symmetric()) << size;
      }
    }
  }
}

TEST(BaseGraph, WeightsOfThreeRanks) {
  // 3 = 2 + 1: the pair averages, rank 2 exchanges with rank 0 at 2/3, the pair averages again.
  const Schedule schedule = simple_base_graph(3, 1);
  ASSERT_EQ(schedule.period_steps(), 3);
  const NeighborPlan pair{
      .rank = 0, .size = 3, .self_weight = 0.5, .sources = {{1, 0.5}}, .destinations = {{1, 1.0}}};
  EXPECT_EQ(*schedule.plan_for(0, 0), pair);
  EXPECT_EQ(*schedule.plan_for(2, 0), NeighborPlan::alone(2, 3));
  const NeighborPlan receives = *schedule.plan_for(2, 1);
  ASSERT_EQ(receives.sources.size(), 1U);
  EXPECT_EQ(receives.sources.front().rank, 0);
  EXPECT_NEAR(receives.sources.front().weight, 2.0 / 3.0, 1e-15);
  EXPECT_NEAR(receives.self_weight, 1.0 / 3.0, 1e-15);
}

TEST(BaseGraph, HandlesManyRanks) {
  const int size = 100'003;  // a prime
  const Schedule schedule = base_graph(size, 1);
  EXPECT_LE(schedule.period_steps(), 35);
  std::vector<double> x(size);
  for (int rank = 0; rank < size; ++rank) {
    x[rank] = rank % 17;
  }
  double mean = 0.0;
  for (const double value : x) {
    mean += value / size;
  }
  std::vector<double> y(size);
  for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
    schedule.mixing_matrix(step).apply(x, y);
    x.swap(y);
  }
  const auto [lowest, highest] = std::ranges::minmax(x);
  EXPECT_NEAR(lowest, mean, 1e-10);
  EXPECT_NEAR(highest, mean, 1e-10);
}

TEST(HyperHypercube, AveragesExactlyWithFewSteps) {
  for (const auto& [size, peers, steps] : std::vector<std::array<int, 3>>{{1, 1, 1},
                                                                          {8, 1, 3},
                                                                          {12, 2, 3},
                                                                          {12, 3, 2},
                                                                          {24, 3, 3},
                                                                          {36, 5, 2},
                                                                          {30, 5, 2},
                                                                          {7, 6, 1}}) {
    const Schedule schedule = hyper_hypercube(size, peers);
    EXPECT_EQ(schedule.period_steps(), steps) << size;
    EXPECT_LE(testing::distance_from_average(testing::dense_period(schedule)), 1e-15) << size;
    testing::expect_plans_fit(schedule, schedule.period_steps());
  }
}

TEST(HyperHypercube, TwoPerCoordinateIsTheHypercube) {
  const Schedule schedule = hyper_hypercube(8, 1);
  for (int rank = 0; rank < 8; ++rank) {
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(schedule.plan_for(rank, step)->sources.front().rank, rank ^ (1 << step));
    }
  }
}

TEST(BaseGraph, RefusesWrongArguments) {
  EXPECT_THROW((void)base_graph(0, 1), InvalidArgument);
  EXPECT_THROW((void)base_graph(4, 0), InvalidArgument);
  EXPECT_THROW((void)simple_base_graph(0, 1), InvalidArgument);
  EXPECT_THROW((void)simple_base_graph(4, -1), InvalidArgument);
  EXPECT_THROW((void)hyper_hypercube(0, 1), InvalidArgument);
  EXPECT_THROW((void)hyper_hypercube(10, 3), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
