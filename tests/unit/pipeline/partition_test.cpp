#include "pipeline/partition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using pipeline::fewest_stages;
using pipeline::largest_stage;
using pipeline::Partition;
using pipeline::partition_layers;
using pipeline::PartitionOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> sizes(const Partition& partition) {
  std::vector<int> found;
  for (int stage = 0; stage < partition.stages(); ++stage) {
    found.push_back(partition.end(stage) - partition.begin(stage));
  }
  return found;
}

std::vector<double> equal(int layers) {
  return std::vector<double>(static_cast<std::size_t>(layers), 2.0);
}

TEST(Partition, EqualLayersInEqualStages) {
  for (const int stages : {1, 2, 3, 4, 6, 12}) {
    const std::vector<int> found = sizes(partition_layers(equal(12), {.stages = stages}));
    EXPECT_EQ(found, std::vector<int>(static_cast<std::size_t>(stages), 12 / stages));
  }
  // 12 in 8: 1.5 and its slack have room for one; the rest grows until two fit.
  EXPECT_THAT(sizes(partition_layers(equal(12), {.stages = 8})),
              ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
}

/// Four layers that were measured a little too slow leave none of theirs to the last stage.
TEST(Partition, MeasuredCostsOfEqualLayersMayDifferBySomePercent) {
  std::vector<double> costs(16, 1.0);
  std::fill_n(costs.begin(), 4, 1.08);
  EXPECT_THAT(sizes(partition_layers(costs, {.stages = 4})), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(sizes(partition_layers(costs, {.stages = 4, .slack = 0})), ElementsAre(3, 4, 4, 5))
      << "no slack stays none";
  // A larger slack would make the first stage the costliest one.
  EXPECT_THAT(sizes(partition_layers(std::vector<double>{1, 1, 0.3, 1, 1}, {.stages = 2})),
              ElementsAre(2, 3));
}

TEST(Partition, FrozenLayersCountASixth) {
  // 6 of a sixth and 6 whole ones are 7: a stage of 1.75 has the frozen ones alone.
  EXPECT_THAT(sizes(partition_layers(equal(12), {.stages = 4, .frozen = 6})),
              ElementsAre(6, 2, 2, 2));
  const Partition two = partition_layers(equal(12), {.stages = 2, .frozen = 11});
  EXPECT_THAT(sizes(two), ElementsAre(8, 4));
  EXPECT_NEAR(largest_stage(equal(12), 11, two), 2 * (3.0 / 6 + 1), 1e-12);
}

TEST(Partition, FrozenLayersMayCountAsOthers) {
  const PartitionOptions frozen{.stages = 4, .frozen = 6, .frozen_share = 1};
  EXPECT_EQ(partition_layers(equal(12), frozen), partition_layers(equal(12), {.stages = 4}));
  EXPECT_EQ(largest_stage(equal(12), 6, partition_layers(equal(12), frozen), 1), 6);
  EXPECT_EQ(fewest_stages(equal(12), frozen, 6), 4);
  // 6 of 1 and 6 of 2 are 18: 4.5 and 0.05 of it would leave the last stage 6, 0.15 of it leaves 4.
  EXPECT_THAT(sizes(partition_layers(equal(12), {.stages = 4, .frozen = 6, .frozen_share = 0.5})),
              ElementsAre(5, 3, 2, 2));
}

TEST(Partition, SlackIsOfTheMean) {
  // The mean of two is 10; 10.5 is within 0.05 of it and 11 is not.
  EXPECT_THAT(sizes(partition_layers(std::vector<double>{10, 0.5, 9.5}, {.stages = 2})),
              ElementsAre(2, 1));
  EXPECT_THAT(sizes(partition_layers(std::vector<double>{10, 1, 9}, {.stages = 2})),
              ElementsAre(1, 2));
  EXPECT_THAT(sizes(partition_layers(std::vector<double>{10, 1, 9}, {.stages = 2, .slack = 0.1})),
              ElementsAre(2, 1));
}

TEST(Partition, NoStageEndsInsideOfASkipConnection) {
  // 2 reads 0 beside 1, 5 reads 3: 0-2 and 3-5 stay together.
  const PartitionOptions options{.stages = 3,
                                 .skips = {{.from = 0, .to = 2}, {.from = 3, .to = 5}}};
  EXPECT_THAT(sizes(partition_layers(equal(7), options)), ElementsAre(3, 3, 1));
  PartitionOptions too_many = options;
  too_many.stages = 4;
  EXPECT_THAT(
      error_of<InvalidArgument>([&] { static_cast<void>(partition_layers(equal(7), too_many)); }),
      HasSubstr("expected 1 to 3 stages (7 layers in 3 groups that skip connections and "
                "layers of cost 0 keep together), found 4"));
}

TEST(Partition, LayersWithoutACostMakeNoStage) {
  const std::vector<double> costs{0, 3, 0, 0, 3, 0};
  EXPECT_THAT(sizes(partition_layers(costs, {.stages = 2})), ElementsAre(4, 2));
  EXPECT_THAT(
      error_of<InvalidArgument>([&] { static_cast<void>(partition_layers(costs, {.stages = 3})); }),
      HasSubstr("expected 1 to 2 stages"));
}

/// Every stage but the last holds the rule, with the slack or a multiple; no layer is lost.
TEST(Partition, TheRuleHoldsForDrawnCosts) {
  std::mt19937 engine(3);
  for (int draw = 0; draw < 300; ++draw) {
    std::vector<double> costs;
    for (int layer = 0; layer < 3 + draw % 15; ++layer) {
      costs.push_back(1 + static_cast<double>(engine() % 50));
    }
    PartitionOptions options;
    options.stages = 1 + static_cast<int>(engine() % costs.size());
    options.frozen = static_cast<int>(engine() % costs.size());
    const Partition found = partition_layers(costs, options);
    ASSERT_EQ(found.stages(), options.stages);
    const auto cost = [&](int begin, int end) {
      double sum = 0;
      for (int layer = begin; layer < end; ++layer) {
        sum += costs[static_cast<std::size_t>(layer)] * (layer < options.frozen ? 1.0 / 6 : 1);
      }
      return sum;
    };
    const auto holds = [&](int times) {
      bool all = true;
      for (int stage = 0; stage < found.stages(); ++stage) {
        const int begin = found.begin(stage);
        const int end = found.end(stage);
        const int left = found.stages() - stage;
        const double most = cost(begin, found.layers()) / left * (1 + 0.05 * times + 1e-6);
        const bool has_room =
            left > 1 && found.layers() - end > left - 1 && cost(begin, end + 1) <= most - 1e-5;
        all = all && !has_room && (left == 1 || end - begin == 1 || cost(begin, end) <= most);
      }
      return all;
    };
    const std::vector<int> multiples{1, 2, 3, 4, 5, 6};
    EXPECT_TRUE(std::ranges::any_of(multiples, holds)) << draw;
    for (int stage = 0; stage < found.stages(); ++stage) {
      const int begin = found.begin(stage);
      const int end = found.end(stage);
      ASSERT_LT(begin, end);
      for (int layer = begin; layer < end; ++layer) {
        EXPECT_EQ(found.stage_of(layer), stage);
      }
    }
  }
}

TEST(Partition, StagesAreHalvedWhileTheLargestIsNoLargerThanAtTheStart) {
  const std::vector<double> costs = equal(12);
  const double limit = largest_stage(costs, 0, partition_layers(costs, {.stages = 8}));
  EXPECT_EQ(limit, 4);
  EXPECT_EQ(fewest_stages(costs, {.stages = 8}, limit), 8);
  // 6 frozen: 6/6 | 2 | 2 | 2 of cost 2 fit into four stages, and not into two.
  EXPECT_EQ(fewest_stages(costs, {.stages = 8, .frozen = 6}, limit), 4);
  // 11 frozen: 8/6 | 3/6 + 1, and 17/6 in one.
  EXPECT_EQ(fewest_stages(costs, {.stages = 8, .frozen = 11}, limit), 2);
  EXPECT_EQ(fewest_stages(costs, {.stages = 8, .frozen = 12}, limit), 1);
  EXPECT_EQ(fewest_stages(costs, {.stages = 3, .frozen = 12}, limit), 3) << "odd";
}

TEST(Partition, MicroBatches) {
  EXPECT_EQ(pipeline::initial_micro_batches(1), 1);
  EXPECT_EQ(pipeline::initial_micro_batches(2), 16);
  EXPECT_EQ(pipeline::initial_micro_batches(4), 16);
  EXPECT_EQ(pipeline::initial_micro_batches(8), 16);
  EXPECT_EQ(pipeline::initial_micro_batches(16), 32);
  EXPECT_THAT(pipeline::micro_batch_rows(10, 4), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(pipeline::micro_batch_rows(2, 4), ElementsAre(1, 1));
  EXPECT_THAT(pipeline::micro_batch_rows(0, 4), ElementsAre());
  EXPECT_THROW(static_cast<void>(pipeline::micro_batch_rows(-1, 4)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(pipeline::micro_batch_rows(4, 0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(pipeline::initial_micro_batches(0)), InvalidArgument);
}

TEST(Partition, WhatCannotBeIsRefused) {
  const auto refusal = [](std::vector<double> costs, const PartitionOptions& options) {
    return error_of<InvalidArgument>([&] { static_cast<void>(partition_layers(costs, options)); });
  };
  EXPECT_THAT(refusal({1, -2}, {}), HasSubstr("found -2 of layer 1"));
  EXPECT_THAT(refusal({std::nan("")}, {}), HasSubstr("of layer 0"));
  EXPECT_THAT(refusal({0, 0}, {}), HasSubstr("found 2 layers of cost 0"));
  EXPECT_THAT(refusal({}, {}), HasSubstr("found 0 layers of cost 0"));
  EXPECT_THAT(refusal({1, 1}, {.stages = 3}), HasSubstr("expected 1 to 2 stages"));
  EXPECT_THAT(refusal({1, 1}, {.stages = 0}), HasSubstr("found 0"));
  for (const double share : {0.0, 1.5}) {
    EXPECT_THAT(refusal({1, 1}, {.frozen_share = share}),
                HasSubstr("expected frozen layers to count a share above 0, up to 1, found"));
  }
  EXPECT_THAT(refusal({1, 1}, {.frozen = 3}), HasSubstr("expected 0 to 2 frozen layers, found 3"));
  EXPECT_THAT(refusal({1, 1}, {.slack = -1}), HasSubstr("found -1"));
  EXPECT_THAT(refusal({1, 1}, {.skips = {{.from = 1, .to = 1}}}), HasSubstr("found 1 to 1"));
  EXPECT_THAT(refusal({1, 1}, {.skips = {{.from = 0, .to = 2}}}), HasSubstr("found 0 to 2"));
  EXPECT_THAT(error_of<InvalidArgument>([] { Partition({0, 2, 2}, 3); }), HasSubstr("[0, 2, 2]"));
  EXPECT_THROW(Partition({}, 3), InvalidArgument);
  EXPECT_THROW(Partition({0, 3}, 3), InvalidArgument);
  EXPECT_THROW(Partition({1}, 3), InvalidArgument);
  const Partition one({0}, 3);
  EXPECT_THROW(static_cast<void>(one.begin(1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(one.stage_of(3)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(largest_stage(equal(2), 0, one)), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::testing
