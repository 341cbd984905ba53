#include "topology/equitopo.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"
#include "topology/spectral_gap.hpp"

namespace bluefog::topology {
namespace {

TEST(EquiTopo, StaticGraphsAreDoublyStochastic) {
  for (int size = 1; size <= 64; ++size) {
    const MixingMatrix directed = equistatic(size);
    const MixingMatrix undirected = equistatic_undirected(size);
    EXPECT_TRUE(directed.is_doubly_stochastic(1e-14)) << size;
    EXPECT_TRUE(undirected.is_doubly_stochastic(1e-14)) << size;
    EXPECT_TRUE(undirected.is_symmetric()) << size;
  }
}

TEST(EquiTopo, OneDrawIsOneOfTheBasis) {
  // A_u: 1/n for self, (n − 1)/n for the rank u behind.
  const MixingMatrix matrix = equistatic(10, {.seed = 3, .draws = 1});
  const std::vector<int> heard = matrix.in_neighbors(0);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_NEAR(matrix.weight(0, 0), 0.1, 1e-15);
  EXPECT_NEAR(matrix.weight(0, heard.front()), 0.9, 1e-15);
  const MixingMatrix both = equistatic_undirected(10, {.seed = 3, .draws = 1});
  EXPECT_EQ(testing::dense(both),
            0.5 * (testing::dense(matrix) + testing::dense(matrix).transpose()));
}

TEST(EquiTopo, DegreeIsAtMostTheDraws) {
  for (int draws = 1; draws <= 20; ++draws) {
    EXPECT_LE(equistatic(50, {.draws = draws}).in_neighbors(0).size(), draws);
    EXPECT_LE(equistatic_undirected(50, {.draws = draws}).in_neighbors(0).size(), 2 * draws);
  }
}

TEST(EquiTopo, FewRanksGetTheAverageItself) {
  EXPECT_LE(testing::distance_from_average(testing::dense(equistatic(5))), 1e-15);
  EXPECT_LE(testing::distance_from_average(testing::dense(equistatic_undirected(5))), 1e-15);
}

TEST(EquiTopo, DistanceFromJDoesNotGrowWithTheRanks) {
  for (const int size : {100, 1000, 10'000}) {
    EXPECT_GE(spectral_gap(equistatic(size)).norm.value, 0.3) << size;
    EXPECT_GE(spectral_gap(equistatic_undirected(size)).norm.value, 0.3) << size;
  }
}

TEST(EquiTopo, PromisedDrawsKeepTheirPromise) {
  // ⌈8 ln(2 · 1000 / 0.1) / (3 · 0.25)⌉
  EXPECT_EQ(equistatic_draws(1000, 0.5, 0.1), 106);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const EquiStaticOptions options{.seed = seed, .draws = 106};
    EXPECT_GE(spectral_gap(equistatic(1000, options)).norm.value, 0.5) << seed;
  }
}

TEST(EquiTopo, DynamicStepsHaveOnePeer) {
  for (const int size : {1, 2, 3, 8, 13, 30}) {
    for (const Schedule& schedule :
         {equidyn(size, {.steps = 40}), equidyn_undirected(size, {.steps = 40})}) {
      testing::expect_plans_fit(schedule, schedule.period_steps());
      for (int rank = 0; rank < size; ++rank) {
        for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
          EXPECT_LE(schedule.plan_for(rank, step)->sources.size(), 1U);
          EXPECT_LE(schedule.plan_for(rank, step)->destinations.size(), 1U);
        }
      }
    }
  }
}

TEST(EquiTopo, UndirectedStepsLeaveNobodyWhoCouldPair) {
  const Schedule schedule = equidyn_undirected(12, {.seed = 2, .steps = 50, .eta = 1.0});
  for (std::int64_t step = 0; step < 50; ++step) {
    const MixingMatrix matrix = schedule.mixing_matrix(step);
    EXPECT_TRUE(matrix.is_symmetric()) << step;
    int pairs = 0;
    for (int rank = 0; rank < 12; ++rank) {
      for (const int peer : matrix.in_neighbors(rank)) {
        EXPECT_NEAR(matrix.weight(rank, peer), 11.0 / 12.0, 1e-15);
        ++pairs;
      }
    }
    EXPECT_GE(pairs, 8) << step;  // a maximal matching of cycles pairs two thirds
  }
}

TEST(EquiTopo, MeanStepOfTheDirectedIsTowardsJ) {
  // E W = (1 − η) I + η J.
  const int size = 6;
  const Schedule schedule = equidyn(size, {.steps = 6000});
  Eigen::MatrixXd mean = Eigen::MatrixXd::Zero(size, size);
  for (std::int64_t step = 0; step < 6000; ++step) {
    mean += testing::dense(schedule.mixing_matrix(step)) / 6000.0;
  }
  const Eigen::MatrixXd expected = 0.5 * Eigen::MatrixXd::Identity(size, size) +
                                   Eigen::MatrixXd::Constant(size, size, 0.5 / size);
  EXPECT_LE((mean - expected).cwiseAbs().maxCoeff(), 0.015);  // five deviations of 6000 draws
}

TEST(EquiTopo, FollowsFromTheSeed) {
  EXPECT_EQ(equistatic(100, {.seed = 7}), equistatic(100, {.seed = 7}));
  EXPECT_NE(equistatic(100, {.seed = 7}), equistatic(100, {.seed = 8}));
  EXPECT_EQ(equidyn(100, {.seed = 7}).mixing_matrix(5), equidyn(100, {.seed = 7}).mixing_matrix(5));
  EXPECT_NE(equidyn(100, {.seed = 7}).mixing_matrix(5), equidyn(100, {.seed = 8}).mixing_matrix(5));
  std::set<int> peers;
  for (int step = 0; step < 20; ++step) {
    peers.insert(equidyn(100, {.seed = 7}).plan_for(0, step)->sources.front().rank);
  }
  EXPECT_GE(peers.size(), 14U);  // 18 are expected
}

TEST(EquiTopo, RefusesWrongArguments) {
  EXPECT_THROW((void)equistatic(0), InvalidArgument);
  EXPECT_THROW((void)equistatic(5, {.draws = 0}), InvalidArgument);
  EXPECT_THROW((void)equistatic_undirected(5, {.rho = 0.0}), InvalidArgument);
  EXPECT_THROW((void)equistatic_draws(5, 0.5, 2.0), InvalidArgument);
  EXPECT_THROW((void)equidyn(0), InvalidArgument);
  EXPECT_THROW((void)equidyn(5, {.steps = 0}), InvalidArgument);
  EXPECT_THROW((void)equidyn_undirected(5, {.eta = 1.5}), InvalidArgument);
  EXPECT_THROW((void)equidyn_undirected(5, {.eta = 0.0}), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
