#include "ops/neighbor_inference.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/support/ranks.hpp"
#include "topology/edge_list.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Rank i sends to the i ranks after it, falling.
std::vector<int> staircase(int rank, int size) {
  std::vector<int> destinations;
  for (int step = std::min(rank, size - 1); step > 0; --step) {
    destinations.push_back((rank + step) % size);
  }
  return destinations;
}

MixingMatrix staircase_matrix(int size) {
  std::vector<WeightedEdge> edges;
  for (int rank = 0; rank < size; ++rank) {
    for (const int destination : staircase(rank, size)) {
      edges.push_back({.source = rank, .destination = destination});
    }
  }
  return topology::from_unweighted_edges(size, edges, topology::WeightRule::Uniform);
}

TEST(NeighborInference, SourcesFollowFromDestinations) {
  on_ranks([](Context& context) {
    const MixingMatrix expected = staircase_matrix(context.size());
    const auto found = ops::infer_sources(context, staircase(context.rank(), context.size()));
    EXPECT_EQ(found.ranks, expected.in_neighbors(context.rank()));
    EXPECT_EQ(found.matrix, expected);
  });
}

TEST(NeighborInference, DestinationsFollowFromSources) {
  on_ranks([](Context& context) {
    const MixingMatrix expected = staircase_matrix(context.size());
    auto sources = expected.in_neighbors(context.rank());
    std::ranges::reverse(sources);
    const auto found = ops::infer_destinations(context, sources);
    EXPECT_EQ(found.ranks, expected.out_neighbors(context.rank()));
    EXPECT_EQ(found.matrix, expected);
  });
}

TEST(NeighborInference, NobodyMayTalk) {
  on_ranks([](Context& context) {
    EXPECT_THAT(ops::infer_sources(context, {}).ranks, IsEmpty());
    const auto found = ops::infer_destinations(context, {});
    EXPECT_THAT(found.ranks, IsEmpty());
    EXPECT_EQ(found.matrix, MixingMatrix::identity(context.size()));
  });
}

TEST(NeighborInference, WrongRanksAreRefusedAndTheContextGoesOn) {
  on_ranks([](Context& context) {
    const int n = context.size();
    const int next = (context.rank() + 1) % n;
    for (const std::vector<int>& wrong :
         {std::vector{-1}, std::vector{n}, std::vector{context.rank()}, std::vector{next, next}}) {
      EXPECT_THROW((void)ops::infer_sources(context, wrong), InvalidArgument);
      EXPECT_THROW((void)ops::infer_destinations(context, wrong), InvalidArgument);
      ops::barrier(context);  // ranks hear of few refusals at once
    }
    if (n > 1) {  // one rank alone has it wrong
      try {
        (void)ops::infer_sources(context, {context.rank() == 0 ? n : 0});
        ADD_FAILURE() << "expected an error";
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(context.rank(), 0);
        EXPECT_THAT(error.what(), HasSubstr("infer_sources: expected different other ranks"));
      } catch (const PeerFailure& error) {
        EXPECT_NE(context.rank(), 0) << error.what();
      }
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
