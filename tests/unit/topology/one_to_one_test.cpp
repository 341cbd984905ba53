#include "topology/one_to_one.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog {
namespace {

using ::bluefog::testing::expect_plans_fit;
using ::testing::ElementsAre;

/// The rank that each rank sends to; itself if it rests.
std::vector<int> receivers(const Schedule& schedule, std::int64_t step) {
  std::vector<int> result;
  for (int rank = 0; rank < schedule.size(); ++rank) {
    const auto plan = schedule.plan_for(rank, step);
    result.push_back(plan->destinations.empty() ? rank : plan->destinations.front().rank);
  }
  return result;
}

std::vector<double> period_product(const Schedule& schedule) {
  MixingMatrix product = schedule.mixing_matrix(0);
  for (std::int64_t step = 1; step < schedule.period_steps(); ++step) {
    product = schedule.mixing_matrix(step).after(product);
  }
  return product.to_dense();
}

void expect_exact_average(const Schedule& schedule) {
  for (const double weight : period_product(schedule)) {
    ASSERT_NEAR(weight, 1.0 / schedule.size(), 1e-15);
  }
}

TEST(OneToOne, HypercubeAveragesExactly) {
  for (const int size : {1, 2, 4, 8, 64}) {
    const Schedule schedule = topology::one_peer_hypercube(size);
    expect_plans_fit(schedule, schedule.period_steps());
    expect_exact_average(schedule);
  }
  EXPECT_THAT(receivers(topology::one_peer_hypercube(4), 1), ElementsAre(2, 3, 0, 1));
  EXPECT_THROW(static_cast<void>(topology::one_peer_hypercube(6)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(topology::one_peer_hypercube(0)), InvalidArgument);
}

TEST(OneToOne, RandomMatchingPairsEverybodyButOne) {
  for (const int size : {1, 2, 5, 8, 31}) {
    const Schedule schedule = topology::random_matching(size, 7);
    expect_plans_fit(schedule, 20);
    for (std::int64_t step = 0; step < 20; ++step) {
      int resting = 0;
      const std::vector<int> readers = receivers(schedule, step);
      for (int rank = 0; rank < size; ++rank) {
        const int peer = readers[static_cast<std::size_t>(rank)];
        resting += peer == rank ? 1 : 0;
        EXPECT_EQ(readers[static_cast<std::size_t>(peer)], rank) << "a pair";
      }
      EXPECT_EQ(resting, size % 2);
    }
  }
}

TEST(OneToOne, RandomMatchingFollowsFromItsSeed) {
  const auto steps_of = [](std::uint64_t seed) {
    std::vector<std::vector<int>> steps;
    for (std::int64_t step = 0; step < 10; ++step) {
      steps.push_back(receivers(topology::random_matching(16, seed), step));
    }
    return steps;
  };
  EXPECT_EQ(steps_of(3), steps_of(3));
  EXPECT_NE(steps_of(3), steps_of(4));
  EXPECT_NE(steps_of(3)[0], steps_of(3)[1]);
  EXPECT_THROW(static_cast<void>(topology::random_matching(0, 1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(topology::random_matching(4, 1, 0)), InvalidArgument);
}

TEST(OneToOne, InnerOuterRing) {
  const Schedule schedule = topology::inner_outer_ring(2, 3);
  EXPECT_EQ(schedule.period_steps(), 3);
  EXPECT_THAT(receivers(schedule, 0), ElementsAre(3, 2, 1, 0, 5, 4));
  EXPECT_THAT(receivers(schedule, 1), ElementsAre(2, 4, 0, 5, 1, 3));
  EXPECT_THAT(receivers(schedule, 2), ElementsAre(1, 0, 5, 4, 3, 2));
  for (const auto& [machines, local_size] : {std::pair{1, 3}, {2, 4}, {3, 3}, {5, 7}}) {
    expect_plans_fit(topology::inner_outer_ring(machines, local_size), 2 * local_size);
  }
  EXPECT_THROW(static_cast<void>(topology::inner_outer_ring(2, 2)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(topology::inner_outer_ring(0, 3)), InvalidArgument);
}

TEST(OneToOne, InnerOuterExponential) {
  const Schedule schedule = topology::inner_outer_exponential(2, 4);
  EXPECT_EQ(schedule.period_steps(), 4);
  EXPECT_THAT(receivers(schedule, 0), ElementsAre(4, 2, 3, 1, 0, 6, 7, 5));
  EXPECT_THAT(receivers(schedule, 1), ElementsAre(3, 5, 0, 2, 7, 1, 4, 6));
  for (const auto& [machines, local_size] : {std::pair{2, 3}, {3, 4}, {4, 8}, {5, 6}}) {
    const Schedule each = topology::inner_outer_exponential(machines, local_size);
    expect_plans_fit(each, each.period_steps());
  }
  EXPECT_THROW(static_cast<void>(topology::inner_outer_exponential(1, 4)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(topology::inner_outer_exponential(2, 2)), InvalidArgument);
}

TEST(OneToOne, OneRankOfAMachineLeavesItInEachStep) {
  const int local_size = 4;
  for (const Schedule& schedule : {topology::inner_outer_ring(3, local_size),
                                   topology::inner_outer_exponential(3, local_size)}) {
    for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
      const std::vector<int> readers = receivers(schedule, step);
      std::vector<int> leaving(3);
      for (std::size_t rank = 0; rank < readers.size(); ++rank) {
        const int machine = static_cast<int>(rank) / local_size;
        leaving[static_cast<std::size_t>(machine)] += readers[rank] / local_size != machine ? 1 : 0;
      }
      EXPECT_THAT(leaving, ElementsAre(1, 1, 1));
    }
  }
}

TEST(OneToOne, AlternatingExponential) {
  const Schedule schedule = topology::alternating_exponential(4, 3);
  EXPECT_EQ(schedule.period_steps(), 4);
  expect_plans_fit(schedule, 4);
  expect_exact_average(schedule);
  EXPECT_EQ(schedule.plan_for(0, 1)->sources.front().rank, 9);
  EXPECT_EQ(schedule.plan_for(0, 3)->sources.front().rank, 6);
  expect_exact_average(topology::alternating_exponential(1, 5));
  expect_plans_fit(topology::alternating_exponential(3, 2), 4);
  EXPECT_THROW(static_cast<void>(topology::alternating_exponential(2, 0)), InvalidArgument);
}

TEST(OneToOne, MachineExponentialIsOnePeerOverMachines) {
  const Schedule schedule = topology::machine_exponential(24, 3);
  EXPECT_EQ(schedule.size(), 8);
  EXPECT_EQ(schedule.period_steps(), 3);
  expect_exact_average(schedule);
  EXPECT_EQ(schedule.plan_for(1, 2)->destinations.front().rank, 5);
  EXPECT_EQ(schedule.plan_for(1, 2)->sources.front().rank, 5);
  EXPECT_EQ(schedule.plan_for(1, 1)->destinations.front().rank, 3);
  EXPECT_EQ(schedule.plan_for(1, 1)->sources.front().rank, 7);
  EXPECT_EQ(topology::machine_exponential(4, 4).size(), 1);
  EXPECT_THROW((void)topology::machine_exponential(10, 3), InvalidArgument);
  EXPECT_THROW((void)topology::machine_exponential(10, 0), InvalidArgument);
  EXPECT_THROW((void)topology::machine_exponential(0, 1), InvalidArgument);
}

}  // namespace
}  // namespace bluefog
