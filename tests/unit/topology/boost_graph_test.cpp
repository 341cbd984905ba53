#include "topology/boost_graph.hpp"

#include <gtest/gtest.h>

#include "bluefog_cpp/error.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::topology {
namespace {

TEST(BoostGraph, EdgeGivesItsTargetTheWeight) {
  WeightedDigraph graph(2);
  add_edge(0, 0, 1.0, graph);
  add_edge(0, 1, 0.25, graph);
  add_edge(1, 1, 0.75, graph);
  EXPECT_EQ(from_graph(graph).to_dense(), (std::vector<double>{1.0, 0.0, 0.25, 0.75}));
}

TEST(BoostGraph, GoesThereAndBack) {
  for (const MixingMatrix& matrix : {exponential(13), mesh_2d(12), star(5, 3)}) {
    EXPECT_EQ(from_graph(to_graph(matrix)), matrix);
  }
}

TEST(BoostGraph, CountsStrongComponents) {
  EXPECT_EQ(count_strong_components(MixingMatrix::identity(4)), 4);
  EXPECT_EQ(count_strong_components(ring(100'000, RingStyle::Left)), 1);
  const MixingMatrix one_way = MixingMatrix::from_rows({{{0, 1.0}}, {{0, 0.5}, {1, 0.5}}});
  EXPECT_EQ(count_strong_components(one_way), 2);
  EXPECT_FALSE(is_strongly_connected(one_way));
}

TEST(BoostGraph, EdgesOfWeightZeroDoNotConnect) {
  const MixingMatrix matrix = MixingMatrix::from_rows({{{0, 1.0}, {1, 0.0}}, {{0, 0.5}, {1, 0.5}}});
  EXPECT_EQ(count_strong_components(matrix), 2);
}

TEST(BoostGraph, RegularWhereDegreesAreEqual) {
  EXPECT_TRUE(is_regular(exponential(12)));
  EXPECT_TRUE(is_regular(MixingMatrix::identity(3)));
  const MixingMatrix hypercube_by_rows = MixingMatrix::from_dense(8, hypercube(8).to_dense());
  EXPECT_TRUE(is_regular(hypercube_by_rows));
  EXPECT_FALSE(is_regular(star(4)));
  EXPECT_FALSE(is_regular(mesh_2d(9)));
  // 0 → 1 → 2: as many edges at 0 as at 2, more at 1.
  EXPECT_FALSE(is_regular(
      MixingMatrix::from_rows({{{0, 1.0}}, {{0, 0.5}, {1, 0.5}}, {{1, 0.5}, {2, 0.5}}})));
}

TEST(BoostGraph, PatternsOfASubgroupAreNotConnected) {
  const MixingMatrix even =
      MixingMatrix::from_pattern({.shape = {6}, .entries = {{0, .5}, {2, .5}}});
  EXPECT_FALSE(is_strongly_connected(even));
  EXPECT_EQ(count_strong_components(even), 2);
  EXPECT_TRUE(is_strongly_connected(exponential(100'003)));
}

TEST(BoostGraph, RefusesParallelEdgesAndEmptyGraphs) {
  WeightedDigraph graph(2);
  add_edge(0, 1, 0.5, graph);
  add_edge(0, 1, 0.5, graph);
  EXPECT_THROW((void)from_graph(graph), InvalidArgument);
  EXPECT_THROW((void)from_graph(WeightedDigraph(0)), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
