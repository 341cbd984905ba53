#include "topology/edge_list.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::topology {
namespace {

MixingMatrix read(const std::string& text, const EdgeListOptions& options = {}) {
  std::istringstream stream(text);
  return read_edge_list(stream, "graph.txt", options);
}

std::string refusal(const std::string& text, const EdgeListOptions& options = {}) {
  try {
    (void)read(text, options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(EdgeList, ReadsWeightsCommentsAndBlanks) {
  const MixingMatrix matrix = read("# a graph\n\n0 0 0.5\r\n\t1 0 5e-1 # heard by 0\n1 1 1");
  EXPECT_EQ(matrix.to_dense(), (std::vector<double>{0.5, 0.5, 0.0, 1.0}));
}

TEST(EdgeList, GivesUniformWeightsWhereThereAreNone) {
  const MixingMatrix matrix = read("0 1\n2 1\n1 2\n0 0\n");
  EXPECT_EQ(matrix.row(0), (std::vector<WeightedRank>{{0, 1.0}}));
  EXPECT_EQ(matrix.row(1), (std::vector<WeightedRank>{{0, 1.0 / 3}, {1, 1.0 / 3}, {2, 1.0 / 3}}));
  EXPECT_EQ(matrix.row(2), (std::vector<WeightedRank>{{1, 0.5}, {2, 0.5}}));
}

TEST(EdgeList, GivesMetropolisHastingsWeights) {
  const EdgeListOptions options{.size = 6, .rule = WeightRule::MetropolisHastings};
  std::string text;
  const MixingMatrix mesh = mesh_2d(6);
  for (int rank = 0; rank < 6; ++rank) {
    for (const int to : mesh.out_neighbors(rank)) {
      text += std::to_string(rank) + " " + std::to_string(to) + "\n";
    }
  }
  const MixingMatrix matrix = read(text, options);
  EXPECT_TRUE(matrix.is_doubly_stochastic());
  for (int rank = 0; rank < 6; ++rank) {
    for (int other = 0; other < 6; ++other) {
      EXPECT_DOUBLE_EQ(matrix.weight(rank, other), mesh.weight(rank, other));
    }
  }
}

TEST(EdgeList, ARuleIsForEdgesWithoutWeights) {
  EXPECT_EQ(refusal("0 1 0.5\n1 0 0.5\n", {.size = 0, .rule = WeightRule::Uniform}),
            "edge list graph.txt: has weights, expected none where a rule for weights is given");
}

TEST(EdgeList, MetropolisHastingsNeedsEdgesBack) {
  EXPECT_EQ(
      refusal("0 1\n1 0\n1 2\n", {.size = 0, .rule = WeightRule::MetropolisHastings}),
      "Metropolis-Hastings weights: edge 1 -> 2 has no edge back, expected an undirected graph");
}

TEST(EdgeList, SizeMayExceedTheHighestRank) {
  EXPECT_EQ(read("0 1\n", {.size = 4, .rule = WeightRule::Uniform}).size(), 4);
}

// A slip of a key would make a graph of millions of ranks, most of which no edge names.
TEST(EdgeList, ARankFarAboveAllOthersNeedsASize) {
  EXPECT_EQ(refusal("0 1\n1 9000000\n"),
            "edge list graph.txt: rank 9000000 is the highest, and 2 edges name few of those below "
            "it: give the size where this is meant");
  EXPECT_EQ(refusal("0 1023\n"), "");
  EXPECT_EQ(read("0 1\n1 90000\n", {.size = 90001, .rule = WeightRule::Uniform}).size(), 90001);
}

TEST(EdgeList, NamesTheWrongLine) {
  EXPECT_EQ(refusal("0 1 1\n0 x 1\n"),
            "edge list graph.txt, line 2: 'x' is not a rank, expected 0 to 9999999");
  EXPECT_EQ(refusal("-1 0\n"),
            "edge list graph.txt, line 1: '-1' is not a rank, expected 0 to 9999999");
  EXPECT_EQ(refusal("0 99999999999999999999\n"),
            "edge list graph.txt, line 1: '99999999999999999999' is not a rank, expected 0 to "
            "9999999");
  EXPECT_EQ(refusal("#\n0 4\n", {.size = 4, .rule = WeightRule::Uniform}),
            "edge list graph.txt, line 2: '4' is not a rank, expected 0 to 3");
  EXPECT_EQ(refusal("0 1 nan\n"),
            "edge list graph.txt, line 1: 'nan' is not a weight, expected a finite number");
  EXPECT_EQ(refusal("0 1 1e999\n"),
            "edge list graph.txt, line 1: '1e999' is not a weight, expected a finite number");
  EXPECT_EQ(refusal("0 1 1.0x\n"),
            "edge list graph.txt, line 1: '1.0x' is not a weight, expected a finite number");
  EXPECT_EQ(refusal("0 1 2 3\n"),
            "edge list graph.txt, line 1: 4 words, expected 'i j' or 'i j weight'");
  EXPECT_EQ(refusal("0\n"), "edge list graph.txt, line 1: 1 words, expected 'i j' or 'i j weight'");
  EXPECT_EQ(refusal("0 1\n1 0\n0 1\n"),
            "edge list graph.txt, line 3: edge 0 1 again, first on line 1");
  EXPECT_EQ(refusal("0 1\n1 0 0.5\n"),
            "edge list graph.txt, line 2: a weight, but earlier lines have none");
  EXPECT_EQ(refusal("0 1 0.5\n1 0\n"),
            "edge list graph.txt, line 2: no weight, but earlier lines have one");
}

TEST(EdgeList, RefusesTextsThatAreNoGraph) {
  EXPECT_EQ(refusal(""), "edge list graph.txt: no edges");
  EXPECT_EQ(refusal("# nothing\n\n"), "edge list graph.txt: no edges");
  EXPECT_NE(refusal("0 1\n" + std::string(5000, 'x')).find("line 2: more than 1000 characters"),
            std::string::npos);
  EXPECT_EQ(read("0 1" + std::string(997, ' ') + "\n1 0").size(), 2);
  EXPECT_NE(refusal(std::string("\x7f"
                                "ELF\x01\0\0",
                                7))
                .find("1 words"),
            std::string::npos);
  EXPECT_NE(refusal(std::string("\x1b[2J 0\n")).find("'?[2J'"), std::string::npos);
  EXPECT_NE(refusal("0 1\n", {.size = -1, .rule = WeightRule::Uniform}), "");
  EXPECT_THROW((void)load_edge_list("no/such/graph.txt"), InvalidArgument);
  EXPECT_THROW((void)load_edge_list("."), InvalidArgument);
}

TEST(EdgeList, RulesRefuseWrongEdges) {
  const std::vector<WeightedEdge> outside = {{0, 2, 1.0}};
  EXPECT_THROW((void)from_unweighted_edges(2, outside, WeightRule::Uniform), InvalidArgument);
  const std::vector<WeightedEdge> loop_outside = {{2, 2, 1.0}};
  EXPECT_THROW((void)from_unweighted_edges(2, loop_outside, WeightRule::Uniform), InvalidArgument);
  const std::vector<WeightedEdge> twice = {{0, 1, 1.0}, {0, 1, 1.0}};
  EXPECT_THROW((void)from_unweighted_edges(2, twice, WeightRule::Uniform), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::topology
