#include "topology/schedule.hpp"

#include <gtest/gtest.h>

#include "bluefog_cpp/error.hpp"
#include "topology/edge_list.hpp"
#include "topology/mixing/plan_agreement.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog {
namespace {

MixingMatrix product_of_period(const Schedule& schedule) {
  MixingMatrix product = schedule.mixing_matrix(0);
  for (std::int64_t step = 1; step < schedule.period_steps(); ++step) {
    product = schedule.mixing_matrix(step).after(product);
  }
  return product;
}

/// Plans of all ranks agree with each other and with the matrix of the step.
void expect_consistent(const Schedule& schedule, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    const MixingMatrix matrix = schedule.mixing_matrix(step);
    EXPECT_TRUE(matrix.is_row_stochastic(1e-15));
    std::vector<NeighborPlan> plans;
    for (int rank = 0; rank < schedule.size(); ++rank) {
      plans.push_back(*schedule.plan_for(rank, step));
      EXPECT_EQ(plans.back(), matrix.plan_for(rank)) << "step " << step;
    }
    EXPECT_NO_THROW(check_plans_agree(plans)) << "step " << step;
  }
}

TEST(Schedule, StaticIsTheSameInEveryStep) {
  const Schedule schedule = topology::static_schedule(topology::exponential(6));
  EXPECT_EQ(schedule.period_steps(), 1);
  EXPECT_EQ(schedule.size(), 6);
  EXPECT_EQ(schedule.mixing_matrix(1'000'000), topology::exponential(6));
  expect_consistent(schedule, 2);
}

TEST(Schedule, OnePeerExponentialAveragesExactlyForPowersOfTwo) {
  std::int64_t tau = 0;
  for (int size = 1; size <= 1024; size *= 2, ++tau) {
    const Schedule schedule = topology::one_peer_exponential(size);
    EXPECT_EQ(schedule.period_steps(), std::max<std::int64_t>(tau, 1));
    EXPECT_EQ(product_of_period(schedule), topology::fully_connected(size)) << size;
  }
}

TEST(Schedule, OnePeerExponentialOnlyApproachesElsewhere) {
  for (const int size : {3, 6, 7, 12, 33}) {
    const MixingMatrix product = product_of_period(topology::one_peer_exponential(size));
    EXPECT_TRUE(product.is_doubly_stochastic()) << size;
    EXPECT_NE(product, topology::fully_connected(size)) << size;
  }
}

TEST(Schedule, OnePeerExponentialHearsThePowerBehind) {
  const Schedule schedule = topology::one_peer_exponential(6);
  EXPECT_EQ(schedule.period_steps(), 3);
  const NeighborPlan expected{
      .rank = 1, .size = 6, .self_weight = 0.5, .sources = {{3, 0.5}}, .destinations = {{5, 1.0}}};
  EXPECT_EQ(*schedule.plan_for(1, 2), expected);
  EXPECT_EQ(*schedule.plan_for(1, 5), expected);
  expect_consistent(schedule, 6);
}

TEST(Schedule, OnePeerOfAGraphGoesClockwise) {
  // 0 sends to 1 and 3, 1 to 0, 2 to 0 and 1, 3 to nobody.
  const std::vector<WeightedEdge> edges = {{0, 1}, {0, 3}, {1, 0}, {2, 0}, {2, 1}};
  const Schedule schedule =
      topology::one_peer(topology::from_unweighted_edges(4, edges, topology::WeightRule::Uniform));
  EXPECT_EQ(schedule.period_steps(), 2);
  // Step 0: 0→1, 1→0, 2→0 (clockwise from 2: 0, 1). Step 1: 0→3, 1→0, 2→1.
  const NeighborPlan first{.rank = 0,
                           .size = 4,
                           .self_weight = 1.0 / 3,
                           .sources = {{1, 1.0 / 3}, {2, 1.0 / 3}},
                           .destinations = {{1, 1.0}}};
  const NeighborPlan second{
      .rank = 0, .size = 4, .self_weight = 0.5, .sources = {{1, 0.5}}, .destinations = {{3, 1.0}}};
  EXPECT_EQ(*schedule.plan_for(0, 0), first);
  EXPECT_EQ(*schedule.plan_for(0, 1), second);
  EXPECT_EQ(*schedule.plan_for(3, 0), NeighborPlan::alone(3, 4));
  EXPECT_EQ(schedule.plan_for(2, 0)->self_weight, 1.0);
  expect_consistent(schedule, 4);
}

TEST(Schedule, OnePeerOfAnExponentialGraphIsOnePeerExponential) {
  for (const int size : {1, 2, 5, 8, 12}) {
    const Schedule expected = topology::one_peer_exponential(size);
    const Schedule schedule = topology::one_peer(topology::exponential(size));
    ASSERT_EQ(schedule.period_steps(), expected.period_steps());
    for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
      EXPECT_EQ(schedule.mixing_matrix(step), expected.mixing_matrix(step));
    }
  }
}

TEST(Schedule, OnePeerPeriodIsTheLeastCommonMultipleOfDegrees) {
  const Schedule schedule = topology::one_peer(topology::mesh_2d(12));
  EXPECT_EQ(schedule.period_steps(), 12);  // degrees 2, 3 and 4
  expect_consistent(schedule, 12);
}

TEST(Schedule, PlansAreKept) {
  const Schedule schedule = topology::one_peer_exponential(8);
  const Schedule copy = schedule;  // NOLINT: copies share what was kept
  EXPECT_EQ(schedule.plan_for(3, 1), copy.plan_for(3, 4));
  EXPECT_NE(schedule.plan_for(3, 1), schedule.plan_for(3, 2));
}

TEST(Schedule, RefusesWrongArguments) {
  const Schedule schedule = topology::one_peer_exponential(4);
  EXPECT_THROW((void)schedule.plan_for(4, 0), InvalidArgument);
  EXPECT_THROW((void)schedule.plan_for(-1, 0), InvalidArgument);
  EXPECT_THROW((void)schedule.plan_for(0, -1), InvalidArgument);
  EXPECT_THROW((void)schedule.mixing_matrix(-1), InvalidArgument);
  EXPECT_THROW((void)topology::one_peer_exponential(0), InvalidArgument);
  EXPECT_THROW((void)topology::cycle({}), InvalidArgument);
  EXPECT_THROW((void)topology::cycle({topology::ring(3), topology::ring(4)}), InvalidArgument);
}

TEST(Schedule, RefusesAPeriodBeyond64Bits) {
  // Rank i sends to the i ranks after it: out-degrees 0 … 79.
  std::vector<WeightedEdge> edges;
  for (int rank = 0; rank < 80; ++rank) {
    for (int k = 1; k <= rank; ++k) {
      edges.push_back({rank, (rank + k) % 80});
    }
  }
  EXPECT_THROW((void)topology::one_peer(MixingMatrix::from_edges(80, edges)), InvalidArgument);
}

}  // namespace
}  // namespace bluefog
