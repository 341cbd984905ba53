#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/topology/dense_period.hpp"
#include "topology/one_to_one.hpp"
#include "topology/plan_builder.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;
using ::testing::ThrowsMessage;
using Ranks = std::vector<int>;

/// The words with which W refuses to be without these ranks.
void expect_refused(const MixingMatrix& matrix, const Ranks& ranks, const std::string& words) {
  EXPECT_THAT([&] { (void)matrix.without(ranks); }, ThrowsMessage<InvalidArgument>(StrEq(words)));
}

std::vector<std::uint64_t> bits_of(const MixingMatrix& matrix) {
  std::vector<std::uint64_t> bits;
  for (const double weight : matrix.to_dense()) {
    bits.push_back(std::bit_cast<std::uint64_t>(weight));
  }
  return bits;
}

TEST(Without, NeighborsOfALostRankHearEachOther) {
  const MixingMatrix left = topology::ring(8).without(Ranks{3});
  EXPECT_EQ(left.size(), 8);
  EXPECT_EQ(left.row(3), (std::vector<WeightedRank>{{3, 1.0}}));
  EXPECT_EQ(left.in_neighbors(2), (Ranks{1, 4}));
  EXPECT_EQ(left.in_neighbors(4), (Ranks{2, 5}));
  EXPECT_DOUBLE_EQ(left.weight(2, 4), 1.0 / 6.0);
  EXPECT_DOUBLE_EQ(left.weight(2, 2), 1.0 / 2.0);
  EXPECT_EQ(left.row(6), topology::ring(8).row(6));
  EXPECT_TRUE(left.is_doubly_stochastic(1e-15));
  EXPECT_TRUE(left.is_symmetric(0.0));
  EXPECT_TRUE(left.keeps_mean());
}

TEST(Without, SymmetricWeightsStaySymmetricBitForBit) {
  constexpr int kSize = 12;
  Eigen::MatrixXd w(kSize, kSize);
  for (int i = 0; i < kSize; ++i) {
    for (int j = 0; j < kSize; ++j) {
      w(i, j) = i == j ? 0.0 : 1.0 / (20 + i * j + i + j);
    }
  }
  w.diagonal() = 1.0 - w.rowwise().sum().array();
  const auto matrix = MixingMatrix::from_dense(kSize, {w.data(), kSize * kSize});
  ASSERT_TRUE(matrix.is_symmetric(0.0));
  EXPECT_TRUE(matrix.without(Ranks{1, 4, 9}).is_symmetric(0.0));
}

TEST(Without, ADirectedRingClosesOverTheGap) {
  const MixingMatrix left = topology::ring(5, topology::RingStyle::Right).without(Ranks{4, 0});
  EXPECT_EQ(left.row(1), (std::vector<WeightedRank>{{1, 0.5}, {3, 0.5}}));
  EXPECT_EQ(left.row(2), (std::vector<WeightedRank>{{1, 0.5}, {2, 0.5}}));
  EXPECT_EQ(left.plan_for(0), NeighborPlan::alone(0, 5));
  EXPECT_EQ(left.plan_for(4), NeighborPlan::alone(4, 5));
}

TEST(Without, BitsDoNotDependOnTheOrderOfTheList) {
  const MixingMatrix graph = topology::exponential(23);
  const auto bits = bits_of(graph.without(Ranks{2, 9, 10}));
  EXPECT_EQ(bits_of(graph.without(Ranks{10, 2, 9})), bits);
  EXPECT_EQ(bits_of(graph.without(Ranks{9, 10, 2})), bits);
  // One after the other by rising rank is what is done inside.
  EXPECT_EQ(bits_of(graph.without(Ranks{2}).without(Ranks{9}).without(Ranks{10})), bits);
}

TEST(Without, BitsDoNotDependOnHowWIsStored) {
  const MixingMatrix pattern = topology::exponential(24);
  ASSERT_NE(pattern.pattern(), nullptr);
  const MixingMatrix rows = MixingMatrix::from_dense(24, pattern.to_dense());
  ASSERT_EQ(rows.pattern(), nullptr);
  EXPECT_EQ(bits_of(pattern.without(Ranks{0, 5})), bits_of(rows.without(Ranks{0, 5})));
}

TEST(Without, AnyOrderOfLossesGivesTheSameUpToRounding) {
  const MixingMatrix graph = topology::exponential(23);
  const Eigen::MatrixXd together = testing::dense(graph.without(Ranks{2, 9, 10}));
  for (const Ranks& order : {Ranks{9, 2, 10}, Ranks{10, 9, 2}, Ranks{10, 2, 9}}) {
    MixingMatrix left = graph;
    for (const int rank : order) {
      left = left.without(Ranks{rank});
    }
    EXPECT_LE((testing::dense(left) - together).cwiseAbs().maxCoeff(), 1e-15);
  }
}

TEST(Without, ARankIsLostOnce) {
  const MixingMatrix left = topology::exponential(9).without(Ranks{4});
  EXPECT_EQ(left.without(Ranks{4}), left);
}

TEST(Without, NobodyLostIsWItself) {
  const MixingMatrix ring = topology::ring(6);
  EXPECT_EQ(ring.without(Ranks{}).pattern(), ring.pattern());
}

TEST(Without, APairThatOnlyHearsEachOtherIsClosed) {
  const MixingMatrix step = topology::one_peer_exponential(8).mixing_matrix(2);  // distance 4
  const MixingMatrix left = step.without(Ranks{0, 4});
  EXPECT_EQ(left.row(0), (std::vector<WeightedRank>{{0, 1.0}}));
  EXPECT_EQ(left.row(4), (std::vector<WeightedRank>{{4, 1.0}}));
  for (const int rank : {1, 2, 3, 5, 6, 7}) {
    EXPECT_EQ(left.row(rank), step.row(rank));
  }
  EXPECT_TRUE(left.keeps_mean());
}

TEST(Without, AWholeMachineIsClosedInALocalAverage) {
  const MixingMatrix inside = topology::alternating_exponential(3, 4).mixing_matrix(0);
  const MixingMatrix left = inside.without(Ranks{4, 5, 6, 7});
  for (const int rank : {4, 5, 6, 7}) {
    EXPECT_EQ(left.row(rank), (std::vector<WeightedRank>{{rank, 1.0}}));
  }
  EXPECT_EQ(left.row(0), inside.row(0));
  EXPECT_EQ(left.row(8), inside.row(8));
  EXPECT_TRUE(left.is_doubly_stochastic(0.0));
  // With one of them left, it keeps its own value.
  EXPECT_EQ(inside.without(Ranks{4, 5, 7}).plan_for(6), NeighborPlan::alone(6, 12));
}

TEST(Without, ARankAloneIsClosed) {
  EXPECT_EQ(MixingMatrix::identity(4).without(Ranks{2}), MixingMatrix::identity(4));
}

/// 0 keeps its own value and hears nobody; 1 and 2 hear it. Rows sum to 1.
MixingMatrix source_alone() {
  return MixingMatrix::from_rows({{{0, 1.0}}, {{0, 0.25}, {1, 0.75}}, {{0, 0.5}, {2, 0.5}}});
}

TEST(Without, AWeightForAClosedRankGoesBackAndTheMeanIsNotKept) {
  const MixingMatrix rows = MixingMatrix::from_rows(
      {{{0, 1.0}}, {{0, 0.25}, {1, 0.25}, {2, 0.5}}, {{1, 0.25}, {2, 0.75}}});
  const MixingMatrix left = rows.without(Ranks{0});
  EXPECT_EQ(left.row(1), (std::vector<WeightedRank>{{1, 0.5}, {2, 0.5}}));
  EXPECT_EQ(left.row(2), (std::vector<WeightedRank>{{1, 0.25}, {2, 0.75}}));
  EXPECT_TRUE(left.is_row_stochastic(0.0));
  EXPECT_FALSE(left.keeps_mean());
  EXPECT_EQ(source_alone().without(Ranks{0}), MixingMatrix::identity(3));
}

TEST(Without, ColumnsThatSumToOneGoOnToDoSo) {
  // Push-sum: 0 shares its value with 1 and 2, 1 with 2, 2 with 0.
  const MixingMatrix columns = MixingMatrix::from_rows(
      {{{0, 0.25}, {2, 0.5}}, {{0, 0.25}, {1, 0.5}}, {{0, 0.5}, {1, 0.5}, {2, 0.5}}});
  ASSERT_TRUE(columns.is_column_stochastic(0.0));
  ASSERT_FALSE(columns.is_row_stochastic());
  for (const int lost : {0, 1, 2}) {
    const MixingMatrix left = columns.without(Ranks{lost});
    EXPECT_TRUE(left.is_column_stochastic(1e-15)) << lost;
    EXPECT_EQ(left, columns.transposed().without(Ranks{lost}).transposed()) << lost;
  }
  // What a rank that nobody hears had heard goes back to the senders.
  EXPECT_EQ(source_alone().transposed().without(Ranks{0}), MixingMatrix::identity(3));
}

TEST(Without, AVeryShyRankIsNotClosed) {
  // 1 − w_dd = 1e-10 would have six digits left by subtraction.
  const double shy = 1e-10;
  const MixingMatrix chain = MixingMatrix::from_rows({{{0, 1.0 - shy}, {1, shy}},
                                                      {{0, shy}, {1, 1.0 - 2 * shy}, {2, shy}},
                                                      {{1, shy}, {2, 1.0 - shy}}});
  EXPECT_DOUBLE_EQ(chain.without(Ranks{1}).weight(0, 2), shy / 2);
}

TEST(Without, EdgesOfWeightZeroLeadNowhere) {
  const MixingMatrix path = MixingMatrix::from_rows(
      {{{0, 1.0}, {1, 0.0}}, {{0, 0.5}, {1, 0.25}, {2, 0.25}}, {{0, 0.0}, {1, 0.5}, {2, 0.5}}});
  const MixingMatrix left = path.without(Ranks{1});
  EXPECT_EQ(left.row(0), (std::vector<WeightedRank>{{0, 1.0}}));
  EXPECT_EQ(left.in_neighbors(2), (Ranks{0}));
}

TEST(Without, WrongRanksAreNamed) {
  const MixingMatrix ring = topology::ring(4);
  expect_refused(ring, {4}, "mixing matrix without ranks: expected ranks from 0 to 3, found 4");
  expect_refused(ring, {1, -1},
                 "mixing matrix without ranks: expected ranks from 0 to 3, found -1");
  expect_refused(ring, {2, 1, 2},
                 "mixing matrix without ranks: expected distinct ranks, found 2 twice");
  expect_refused(ring, {0, 1, 2, 3},
                 "mixing matrix without ranks: expected a rank that is left, found that all 4 are "
                 "lost");
  expect_refused(MixingMatrix::from_rows({{{0, 0.5}, {1, 0.25}}, {{1, 0.75}, {0, 0.75}}}), {0},
                 "mixing matrix without rank 0: its row sums to 0.75 and its column to 1.25, "
                 "expected 1 of one of them");
  EXPECT_THAT([&] { (void)topology::one_peer_exponential(4).without(Ranks{7}); },
              ThrowsMessage<InvalidArgument>(
                  StrEq("schedule without ranks: expected ranks from 0 to 3, found 7")));
  EXPECT_THAT([&] { (void)ring.among(Ranks{}); },
              ThrowsMessage<InvalidArgument>(
                  StrEq("mixing matrix among ranks: expected at least one rank, found none")));
  EXPECT_THAT(
      [&] {
        (void)topology::one_peer_exponential(4).among(Ranks{1, 1});
      },
      ThrowsMessage<InvalidArgument>(
          StrEq("schedule among ranks: expected distinct ranks, found 1 twice")));
}

TEST(Without, WhatWouldNotFitIsRefused) {
  EXPECT_THAT([] { (void)topology::fully_connected(20'000).without(Ranks{1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("400000000 entries, expected at most")));
  EXPECT_THAT([] { (void)topology::star(20'000).without(Ranks{0}); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("it hears 20000 ranks and 20000 hear it, all of which would hear")));
  EXPECT_EQ(topology::star(20'000).without(Ranks{1}).entry_count(), 3 * 20'000 - 4);
}

TEST(Without, AHundredThousandRanksStaySparse) {
  const MixingMatrix graph = topology::exponential(100'000);
  const MixingMatrix left = graph.without(Ranks{7, 50'000});
  // Each loss takes a row and a column and may give each of 17 readers 17 senders.
  EXPECT_LE(left.entry_count(), graph.entry_count() + 2 * 17 * 17);
  EXPECT_TRUE(left.is_doubly_stochastic(1e-14));
}

TEST(Among, IsThePrincipalSubmatrix) {
  const MixingMatrix graph = topology::exponential(7);
  const MixingMatrix part = graph.among(Ranks{5, 1, 2});
  ASSERT_EQ(part.size(), 3);
  const Ranks ranks{1, 2, 5};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(part.weight(i, j), graph.weight(ranks[i], ranks[j]));
    }
  }
  EXPECT_EQ(graph.among(Ranks{0, 1, 2, 3, 4, 5, 6}).pattern(), graph.pattern());
}

TEST(FromPlans, WeighsByReceiverAndSender) {
  const std::vector<NeighborPlan> plans{
      build_plan(0, 3, {.self_weight = 0.5, .src_weights = {{2, 0.5}}, .dst_weights = {{1, 0.25}}}),
      build_plan(1, 3, {.self_weight = 0.0, .src_weights = {{0, 4.0}}, .dst_weights = {2}}),
      build_plan(2, 3, {.self_weight = 0.25, .src_weights = {{1, 0.75}}, .dst_weights = {0}})};
  const MixingMatrix matrix = MixingMatrix::from_plans(plans);
  EXPECT_EQ(matrix,
            MixingMatrix::from_rows({{{0, 0.5}, {2, 0.5}}, {{0, 1.0}}, {{1, 0.75}, {2, 0.25}}}));
  // 2 heard 1, which heard 0.
  EXPECT_EQ(
      matrix.without(Ranks{1}).plan_for(2),
      build_plan(2, 3, {.self_weight = 0.25, .src_weights = {{0, 0.75}}, .dst_weights = {0}}));
}

TEST(FromPlans, IsTheWThatThePlansAreOf) {
  const MixingMatrix graph = topology::exponential(9);
  std::vector<NeighborPlan> plans;
  for (int rank = 0; rank < 9; ++rank) {
    plans.push_back(graph.plan_for(rank));
  }
  EXPECT_EQ(MixingMatrix::from_plans(plans), graph);
  plans[3].destinations.pop_back();
  EXPECT_THROW((void)MixingMatrix::from_plans(plans), MismatchError);
  EXPECT_THROW((void)MixingMatrix::from_plans({}), InvalidArgument);
}

TEST(ScheduleWithout, StepsAreThoseOfTheMatricesAndPlansFit) {
  for (const Schedule& schedule :
       {topology::one_peer_exponential(11), topology::random_matching(11, 5, 40),
        topology::static_schedule(topology::exponential(11)), topology::inner_outer_ring(4, 3)}) {
    const Ranks lost{8, 3};
    const Schedule left = schedule.without(lost);
    EXPECT_EQ(left.size(), schedule.size());
    EXPECT_EQ(left.period_steps(), schedule.period_steps());
    testing::expect_plans_fit(left, left.period_steps());
    for (std::int64_t step = 0; step < left.period_steps() + 2; ++step) {
      EXPECT_EQ(bits_of(left.mixing_matrix(step)),
                bits_of(schedule.mixing_matrix(step).without(lost)));
      EXPECT_EQ(*left.plan_for(3, step), NeighborPlan::alone(3, left.size()));
      EXPECT_TRUE(left.mixing_matrix(step).keeps_mean());
    }
  }
}

TEST(ScheduleWithout, EveryRankComputesTheSameBits) {
  // Ranks ask for steps in orders of their own.
  const Ranks lost{1, 6};
  const Schedule forward = topology::one_peer_exponential(12).without(lost);
  const Schedule backward = topology::one_peer_exponential(12).without(lost);
  for (int step = 3; step >= 0; --step) {
    (void)backward.plan_for(step, step);
  }
  for (int step = 0; step < 4; ++step) {
    for (int rank = 0; rank < 12; ++rank) {
      EXPECT_EQ(*forward.plan_for(rank, step), *backward.plan_for(rank, step));
    }
  }
}

TEST(ScheduleWithout, NobodyLostIsTheScheduleItself) {
  const Schedule schedule = topology::one_peer_exponential(6);
  EXPECT_EQ(schedule.without(Ranks{}).plan_for(2, 1), schedule.plan_for(2, 1));
  EXPECT_EQ(schedule.among(Ranks{0, 1, 2, 3, 4, 5}).plan_for(2, 1), schedule.plan_for(2, 1));
}

TEST(ScheduleWithout, AmongThoseThatAreLeftRanksAreNumberedAnew) {
  const Schedule left = topology::one_peer_exponential(8).without(Ranks{0});
  const Schedule seven = left.among(Ranks{1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(seven.size(), 7);
  testing::expect_plans_fit(seven, 3);
  for (int step = 0; step < 3; ++step) {
    const Eigen::MatrixXd all = testing::dense(left.mixing_matrix(step));
    EXPECT_EQ(testing::dense(seven.mixing_matrix(step)), all.bottomRightCorner(7, 7));
  }
}

TEST(ScheduleWithout, OnePeerExponentialOfEightWithoutOne) {
  for (int lost = 0; lost < 8; ++lost) {
    Ranks others;
    for (int rank = 0; rank < 8; ++rank) {
      if (rank != lost) {
        others.push_back(rank);
      }
    }
    const Schedule left = topology::one_peer_exponential(8).without(Ranks{lost}).among(others);
    const Eigen::MatrixXd period = testing::dense_period(left);
    EXPECT_LE((period.rowwise().sum().array() - 1.0).abs().maxCoeff(), 1e-15);
    EXPECT_LE((period.colwise().sum().array() - 1.0).abs().maxCoeff(), 1e-15);
    const Eigen::MatrixXd rest = period.array() - 1.0 / 7.0;
    // ‖R‖₂ by powers of R Rᵀ, without the sources of a solver.
    Eigen::VectorXd at = Eigen::VectorXd::LinSpaced(7, 1.0, 2.0).array().sin();
    for (int i = 0; i < 200; ++i) {
      at = (rest * (rest.transpose() * at)).normalized();
    }
    EXPECT_NEAR((rest.transpose() * at).norm(), 0.354, 5e-4) << lost;
  }
}

}  // namespace
}  // namespace bluefog
