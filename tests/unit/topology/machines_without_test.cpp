#include "topology/machines_without.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"
#include "topology/one_to_one.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::topology {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;
using Ranks = std::vector<int>;

/// Machines with these numbers of ranks; the ranks of machines alternate.
MachineLayout layout_of(std::vector<int> sizes) {
  std::vector<std::string> hosts;
  while (std::ranges::any_of(sizes, [](int size) { return size > 0; })) {
    for (std::size_t machine = 0; machine < sizes.size(); ++machine) {
      if (sizes[machine]-- > 0) {
        hosts.push_back(std::to_string(machine));
      }
    }
  }
  return MachineLayout::from_host_ids(hosts);
}

bool is_lost(const Ranks& lost, int rank) { return std::ranges::count(lost, rank) > 0; }

int left_on(const MachineLayout& layout, int machine, const Ranks& lost) {
  return static_cast<int>(std::ranges::count_if(layout.ranks_of(machine),
                                                [&](int rank) { return !is_lost(lost, rank); }));
}

/// The W of all ranks that an average between machines is, with those left on each.
MixingMatrix of_ranks(const MixingMatrix& machines, const MachineLayout& layout,
                      const Ranks& lost = {}) {
  std::vector<std::vector<WeightedRank>> rows(static_cast<std::size_t>(layout.size()));
  for (int rank = 0; rank < layout.size(); ++rank) {
    if (is_lost(lost, rank)) {
      rows[static_cast<std::size_t>(rank)] = {{rank, 1.0}};
      continue;
    }
    for (const WeightedRank& entry : machines.row(layout.machine_of(rank))) {
      const int left = left_on(layout, entry.rank, lost);
      for (const int heard : layout.ranks_of(entry.rank)) {
        if (!is_lost(lost, heard)) {
          rows[static_cast<std::size_t>(rank)].push_back({heard, entry.weight / left});
        }
      }
    }
  }
  return MixingMatrix::from_rows(std::move(rows));
}

double distance(const MixingMatrix& a, const MixingMatrix& b) {
  return (testing::dense(a) - testing::dense(b)).cwiseAbs().maxCoeff();
}

TEST(MachinesWithout, IsTheWOfAllRanksWithoutTheLost) {
  std::mt19937 random(3);
  for (const auto& sizes : {std::vector<int>{2, 2, 2, 2}, {4, 4, 4}, {1, 3, 2, 5}, {3, 1, 1}}) {
    const MachineLayout layout = layout_of(sizes);
    for (const MixingMatrix& machines :
         {ring(layout.machine_count()), exponential(layout.machine_count()),
          star(layout.machine_count())}) {
      for (int trial = 0; trial < 60; ++trial) {
        Ranks lost(static_cast<std::size_t>(layout.size()));
        std::iota(lost.begin(), lost.end(), 0);
        std::ranges::shuffle(lost, random);
        lost.resize(1 + random() % (lost.size() - 1));
        const MixingMatrix left = machines_without(machines, layout, lost);
        EXPECT_TRUE(left.is_row_stochastic(1e-14));
        EXPECT_LE(distance(of_ranks(left, layout, lost), of_ranks(machines, layout).without(lost)),
                  1e-12)
            << ::testing::PrintToString(sizes) << " without " << ::testing::PrintToString(lost);
      }
    }
  }
}

TEST(MachinesWithout, OneRankIsTheFormula) {
  const MachineLayout layout = MachineLayout::single(12).split(3);
  const MixingMatrix machines = exponential(4);
  const MixingMatrix left = machines_without(machines, layout, Ranks{4});
  const int d = 1;
  const double size = 3.0;
  for (int m = 0; m < 4; ++m) {
    for (int n = 0; n < 4; ++n) {
      const double sums = machines.weight(m, n) / size + machines.weight(m, d) / size *
                                                             (machines.weight(d, n) / size) /
                                                             (1.0 - machines.weight(d, d) / size);
      EXPECT_NEAR(left.weight(m, n), sums * (n == d ? 2 : 3), 1e-15) << m << " hears " << n;
    }
  }
}

TEST(MachinesWithout, TheMeanOfThoseThatAreLeftIsKept) {
  const MachineLayout layout = MachineLayout::single(16).split(4);
  const Ranks lost{0, 5, 6, 12, 13, 14, 15};
  const Schedule left = machines_without(machine_exponential(16, 4), layout, lost);
  EXPECT_EQ(left.period_steps(), 2);
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(of_ranks(left.mixing_matrix(step), layout, lost).is_doubly_stochastic(1e-14));
    EXPECT_EQ(*left.plan_for(3, step), NeighborPlan::alone(3, 4));
    for (int machine = 0; machine < 4; ++machine) {
      EXPECT_EQ(*left.plan_for(machine, step), left.mixing_matrix(step).plan_for(machine));
    }
  }
}

TEST(MachinesWithout, AMachineLostWholeIsWithoutOnTheMachines) {
  const MachineLayout layout = MachineLayout::single(12).split(3);
  for (const MixingMatrix& machines : {exponential(4), star(4), ring(4)}) {
    const MixingMatrix left = machines_without(machines, layout, Ranks{3, 4, 5});
    EXPECT_LE(distance(left, machines.without(Ranks{1})), 1e-15);
    EXPECT_EQ(left.plan_for(1), NeighborPlan::alone(1, 4));
  }
  // Alone it is closed.
  EXPECT_EQ(machines_without(MixingMatrix::identity(4), layout, Ranks{3, 4, 5}),
            MixingMatrix::identity(4));
}

TEST(MachinesWithout, AWeightForAClosedMachineGoesBack) {
  const MixingMatrix machines = MixingMatrix::from_rows({{{0, 1.0}}, {{0, 0.25}, {1, 0.75}}});
  const MachineLayout layout = layout_of({2, 3});
  const Ranks lost{0, 2};  // all of machine 0
  ASSERT_EQ(layout.ranks_of(0), lost);
  EXPECT_LE(distance(machines_without(machines, layout, lost), MixingMatrix::identity(2)), 1e-15);
  EXPECT_LE(distance(machines_without(machines, layout, Ranks{2}), machines), 1e-15);
}

TEST(MachinesWithout, WrongUseIsNamed) {
  const MachineLayout layout = MachineLayout::single(4).split(2);
  const auto throws = [&](const MixingMatrix& machines, const Ranks& lost,
                          const std::string& words) {
    EXPECT_THAT([&] { (void)machines_without(machines, layout, lost); },
                ThrowsMessage<InvalidArgument>(StrEq("machines without ranks: " + words)));
    EXPECT_THAT([&] { (void)machines_without(static_schedule(machines), layout, lost); },
                ThrowsMessage<InvalidArgument>(StrEq("machines without ranks: " + words)));
  };
  throws(ring(4), {0}, "expected a W of the layout's 2 machines, found 4");
  throws(ring(2), {4}, "expected ranks from 0 to 3, found 4");
  throws(ring(2), {1, 1}, "expected distinct ranks, found 1 twice");
  throws(ring(2), {0, 1, 2, 3}, "expected a rank that is left, found that all 4 are lost");
  EXPECT_EQ(machines_without(ring(2), layout, Ranks{}), ring(2));
}

}  // namespace
}  // namespace bluefog::topology
