#include "pipeline/pipeline_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using pipeline::layer_moves;
using pipeline::LayerMove;
using pipeline::Partition;
using pipeline::PipelineLayout;
using pipeline::Placement;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PipelineLayout, PipelinesAreRanksThatFollowEachOther) {
  const PipelineLayout layout(8, 4);
  EXPECT_EQ(layout.replicas(), 2);
  EXPECT_EQ(layout.stage_of(6), 2);
  EXPECT_EQ(layout.replica_of(6), 1);
  EXPECT_EQ(layout.rank_of(1, 2), 6);
  EXPECT_THAT(layout.ranks_of_stage(3), ElementsAre(3, 7));
}

TEST(PipelineLayout, AHalvedPipelineGivesTwoReplicasAndMovesWhatTheyLack) {
  const Placement before{PipelineLayout(4, 4), Partition({0, 1, 2, 3}, 4)};
  const Placement after{PipelineLayout(4, 2), Partition({0, 3}, 4)};
  EXPECT_THAT(layer_moves(before, after),
              ElementsAre(LayerMove{0, 0, 2}, LayerMove{1, 1, 0}, LayerMove{1, 1, 2},
                          LayerMove{2, 2, 0}, LayerMove{3, 3, 1}));
  EXPECT_TRUE(layer_moves(before, before).empty());
}

/// After the moves every rank holds what its place asks for, from a rank of its own pipeline.
TEST(PipelineLayout, MovesAreWhatIsMissing) {
  for (const int before_stages : {1, 2, 4, 8}) {
    for (const int after_stages : {1, 2, 4, 8}) {
      const auto placed = [](int stages, double first) {
        std::vector<double> costs(11, 1.0);
        costs[0] = first;
        return Placement{PipelineLayout(8, stages),
                         pipeline::partition_layers(costs, {.stages = stages})};
      };
      const Placement before = placed(before_stages, 1);
      const Placement after = placed(after_stages, 3);
      std::vector<std::set<int>> held(8);
      const auto layers_of = [](const Placement& placement, int rank) {
        std::set<int> layers;
        const int stage = placement.layout.stage_of(rank);
        for (int l = placement.partition.begin(stage); l < placement.partition.end(stage); ++l) {
          layers.insert(l);
        }
        return layers;
      };
      for (int rank = 0; rank < 8; ++rank) {
        held[static_cast<std::size_t>(rank)] = layers_of(before, rank);
      }
      for (const LayerMove& move : layer_moves(before, after)) {
        EXPECT_TRUE(layers_of(before, move.from).contains(move.layer));
        EXPECT_EQ(before.layout.replica_of(move.from), before.layout.replica_of(move.to));
        EXPECT_TRUE(held[static_cast<std::size_t>(move.to)].insert(move.layer).second);
      }
      for (int rank = 0; rank < 8; ++rank) {
        EXPECT_TRUE(
            std::ranges::includes(held[static_cast<std::size_t>(rank)], layers_of(after, rank)));
      }
    }
  }
}

TEST(PipelineLayout, WhatCannotBeIsRefused) {
  EXPECT_THAT(error_of<InvalidArgument>([] { PipelineLayout(6, 4); }),
              HasSubstr("expected a number of stages that divides the 6 ranks, found 4"));
  EXPECT_THROW(PipelineLayout(4, 0), InvalidArgument);
  const PipelineLayout layout(4, 2);
  EXPECT_THROW(static_cast<void>(layout.stage_of(4)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(layout.replica_of(-1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(layout.rank_of(2, 0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(layout.rank_of(0, 2)), InvalidArgument);
  const Placement one{layout, Partition({0, 1}, 2)};
  const Placement other{PipelineLayout(2, 2), Partition({0, 1}, 2)};
  EXPECT_THROW(static_cast<void>(layer_moves(one, other)), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::testing
