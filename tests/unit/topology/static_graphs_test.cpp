#include "topology/static_graphs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/boost_graph.hpp"
#include "topology/mixing/plan_agreement.hpp"

namespace bluefog::topology {
namespace {

using Builder = std::pair<std::string, std::function<MixingMatrix(int)>>;

std::vector<Builder> all_builders() {
  return {{"exponential", [](int n) { return exponential(n); }},
          {"exponential base 3", [](int n) { return exponential(n, 3); }},
          {"symmetric exponential", [](int n) { return symmetric_exponential(n); }},
          {"symmetric exponential base 2", [](int n) { return symmetric_exponential(n, 2); }},
          {"ring", [](int n) { return ring(n); }},
          {"ring left", [](int n) { return ring(n, RingStyle::Left); }},
          {"ring right", [](int n) { return ring(n, RingStyle::Right); }},
          {"mesh", [](int n) { return mesh_2d(n); }},
          {"torus", [](int n) { return torus_2d(n); }},
          {"star", [](int n) { return star(n, n / 2); }},
          {"full", [](int n) { return fully_connected(n); }}};
}

std::vector<NeighborPlan> plans_of(const MixingMatrix& matrix) {
  std::vector<NeighborPlan> plans;
  for (int rank = 0; rank < matrix.size(); ++rank) {
    plans.push_back(matrix.plan_for(rank));
  }
  return plans;
}

TEST(StaticGraphs, AreDoublyStochasticConnectedAndAgree) {
  for (const auto& [name, build] : all_builders()) {
    for (int size = 1; size <= 40; ++size) {
      const MixingMatrix matrix = build(size);
      ASSERT_EQ(matrix.size(), size) << name;
      EXPECT_TRUE(matrix.is_doubly_stochastic(1e-14)) << name << " " << size;
      EXPECT_TRUE(is_strongly_connected(matrix)) << name << " " << size;
      EXPECT_NO_THROW(check_plans_agree(plans_of(matrix))) << name << " " << size;
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_GT(matrix.weight(rank, rank), 0.0) << name;
      }
    }
  }
}

TEST(StaticGraphs, SymmetricWhereUndirected) {
  for (int size = 1; size <= 40; ++size) {
    EXPECT_TRUE(symmetric_exponential(size).is_symmetric()) << size;
    EXPECT_TRUE(ring(size).is_symmetric()) << size;
    EXPECT_TRUE(mesh_2d(size).is_symmetric()) << size;
    EXPECT_TRUE(torus_2d(size).is_symmetric()) << size;
    EXPECT_TRUE(star(size).is_symmetric()) << size;
  }
  EXPECT_FALSE(exponential(8).is_symmetric());
  EXPECT_FALSE(ring(3, RingStyle::Left).is_symmetric());
}

TEST(StaticGraphs, OneRankKeepsItsValueAndTwoAverage) {
  for (const auto& [name, build] : all_builders()) {
    EXPECT_EQ(build(1), MixingMatrix::identity(1)) << name;
    EXPECT_EQ(build(2).to_dense(), std::vector<double>(4, 0.5)) << name;
  }
  EXPECT_EQ(hypercube(1), MixingMatrix::identity(1));
  EXPECT_EQ(hypercube(2).to_dense(), std::vector<double>(4, 0.5));
}

TEST(StaticGraphs, ExponentialHearsPowersOfTwoBehind) {
  const MixingMatrix matrix = exponential(8);
  EXPECT_EQ(matrix.in_neighbors(0), (std::vector<int>{4, 6, 7}));
  EXPECT_EQ(matrix.out_neighbors(0), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(matrix.in_neighbors(5), (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(matrix.weight(5, 1), 0.25);
  EXPECT_EQ(exponential(9).in_neighbors(0), (std::vector<int>{1, 5, 7, 8}));
  EXPECT_EQ(exponential(9).weight(0, 0), 1.0 / 5.0);
  EXPECT_EQ(exponential(10, 3).out_neighbors(0), (std::vector<int>{1, 3, 9}));
}

TEST(StaticGraphs, SymmetricExponentialMirrorsAtHalf) {
  EXPECT_EQ(symmetric_exponential(12).in_neighbors(0), (std::vector<int>{1, 4, 8, 11}));
  EXPECT_EQ(symmetric_exponential(8).in_neighbors(0), (std::vector<int>{1, 4, 7}));
  EXPECT_EQ(symmetric_exponential(8).weight(0, 4), 0.25);
  EXPECT_EQ(symmetric_exponential(7, 2).in_neighbors(3), (std::vector<int>{1, 2, 4, 5}));
}

TEST(StaticGraphs, RingStyles) {
  EXPECT_EQ(ring(5).in_neighbors(0), (std::vector<int>{1, 4}));
  EXPECT_EQ(ring(5).weight(0, 4), 1.0 / 3.0);
  EXPECT_EQ(ring(5, RingStyle::Left).out_neighbors(0), (std::vector<int>{4}));
  EXPECT_EQ(ring(5, RingStyle::Left).in_neighbors(0), (std::vector<int>{1}));
  EXPECT_EQ(ring(5, RingStyle::Right).out_neighbors(0), (std::vector<int>{1}));
  EXPECT_EQ(ring(5, RingStyle::Right).weight(0, 4), 0.5);
}

TEST(StaticGraphs, MeshHasMetropolisHastingsWeights) {
  // 0 1 2
  // 3 4 5
  const MixingMatrix matrix = mesh_2d(6);
  EXPECT_EQ(matrix.in_neighbors(4), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(matrix.weight(0, 1), 0.25);       // degrees 2 and 3
  EXPECT_EQ(matrix.weight(0, 3), 1.0 / 3.0);  // degrees 2 and 2
  EXPECT_DOUBLE_EQ(matrix.weight(0, 0), 5.0 / 12.0);
  EXPECT_EQ(matrix.weight(4, 4), 0.25);
  const MixingMatrix line = mesh_2d(4, GridShape{4, 1});
  EXPECT_EQ(line.in_neighbors(1), (std::vector<int>{0, 2}));
  EXPECT_EQ(line.weight(0, 1), 1.0 / 3.0);
}

TEST(StaticGraphs, TorusWrapsAround) {
  const MixingMatrix matrix = torus_2d(12);
  EXPECT_EQ(matrix.in_neighbors(0), (std::vector<int>{1, 3, 4, 8}));
  EXPECT_EQ(matrix.weight(0, 8), 0.2);
  EXPECT_EQ(torus_2d(6).in_neighbors(0), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(torus_2d(6, GridShape{6, 1}), ring(6));
}

TEST(StaticGraphs, StarGivesEachEdgeOneNth) {
  const MixingMatrix matrix = star(4, 2);
  EXPECT_EQ(matrix.in_neighbors(2), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(matrix.in_neighbors(0), (std::vector<int>{2}));
  EXPECT_EQ(matrix.weight(2, 2), 0.25);
  EXPECT_EQ(matrix.weight(0, 2), 0.25);
  EXPECT_EQ(matrix.weight(0, 0), 0.75);
}

TEST(StaticGraphs, HypercubeDiffersInOneBit) {
  EXPECT_EQ(hypercube(8).in_neighbors(5), (std::vector<int>{1, 4, 7}));
  EXPECT_EQ(hypercube(8).weight(5, 4), 0.25);
  for (int size = 1; size <= 1024; size *= 2) {
    EXPECT_TRUE(hypercube(size).is_doubly_stochastic());
    EXPECT_TRUE(hypercube(size).is_symmetric());
  }
}

TEST(StaticGraphs, FullyConnectedOfManyRanksStaysSmall) {
  const MixingMatrix matrix = fully_connected(100'000);
  EXPECT_EQ(matrix.entry_count(), 10'000'000'000);
  EXPECT_EQ(matrix.row(99'999).size(), 100'000u);
  EXPECT_TRUE(matrix.is_doubly_stochastic());
  EXPECT_TRUE(is_strongly_connected(matrix));
  EXPECT_THROW((void)to_graph(matrix), InvalidArgument);
}

TEST(StaticGraphs, ClosestFactors) {
  EXPECT_EQ(closest_factors(1), (GridShape{1, 1}));
  EXPECT_EQ(closest_factors(12), (GridShape{3, 4}));
  EXPECT_EQ(closest_factors(13), (GridShape{1, 13}));
  EXPECT_EQ(closest_factors(100'000), (GridShape{250, 400}));
}

TEST(StaticGraphs, RefuseWrongArguments) {
  for (const auto& [name, build] : all_builders()) {
    EXPECT_THROW((void)build(0), InvalidArgument) << name;
    EXPECT_THROW((void)build(-3), InvalidArgument) << name;
  }
  EXPECT_THROW((void)exponential(8, 1), InvalidArgument);
  EXPECT_THROW((void)symmetric_exponential(8, 0), InvalidArgument);
  EXPECT_THROW((void)mesh_2d(6, GridShape{2, 2}), InvalidArgument);
  EXPECT_THROW((void)torus_2d(6, GridShape{-2, -3}), InvalidArgument);
  EXPECT_THROW((void)star(4, 4), InvalidArgument);
  EXPECT_THROW((void)star(4, -1), InvalidArgument);
  EXPECT_THROW((void)hypercube(12), InvalidArgument);
  EXPECT_THROW((void)hypercube(0), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
