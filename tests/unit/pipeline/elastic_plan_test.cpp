#include "pipeline/elastic_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using pipeline::Arrangement;
using pipeline::ElasticPlan;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Twelve layers of one cost, a small embedding before them and a small head behind.
std::vector<double> transformer() {
  std::vector<double> costs(14, 6.0);
  costs.front() = 1;
  costs.back() = 1;
  return costs;
}

std::vector<Arrangement> next(ElasticPlan plan, int times) {
  std::vector<Arrangement> found;
  for (int t = 0; t < times; ++t) {
    found.push_back(plan.advance());
  }
  return found;
}

TEST(ElasticPlan, AFrozenEncoderNeedsFewerStages) {
  const ElasticPlan plan(transformer(), {.stages = 4}, {.alpha = 0.5, .embedding_layers = 1});
  EXPECT_EQ(plan.arrangement(), (Arrangement{.stages = 4, .frozen = 0}));
  // The largest stage at the start has 19 (three layers and the embedding). 6 frozen: 6 + 36 + 1
  // and a sixth are 43.2, half of which is more; 9 frozen: 28.2 in two are at most 19.
  EXPECT_THAT(next(plan, 4), ElementsAre(Arrangement{4, 7}, Arrangement{2, 10}, Arrangement{1, 12},
                                         Arrangement{1, 12}));
}

TEST(ElasticPlan, PartsMayBeSwitchedOff) {
  const std::vector<double> costs = transformer();
  EXPECT_THAT(next(ElasticPlan(costs, {.stages = 4}, {.freezes = false}), 2),
              ElementsAre(Arrangement{4, 0}, Arrangement{4, 0}));
  EXPECT_THAT(next(ElasticPlan(costs, {.stages = 4},
                               {.alpha = 0.5, .embedding_layers = 1, .shrinks = false}),
                   3),
              ElementsAre(Arrangement{4, 7}, Arrangement{4, 10}, Arrangement{4, 12}));
}

TEST(ElasticPlan, GradientNormsAreThoseOfTheUnfrozenEncoder) {
  ElasticPlan plan(std::vector<double>(8, 1.0), {.stages = 2},
                   {.alpha = 0.5, .embedding_layers = 1});
  // Encoder layers 1 to 6 are layers 1 to 6 of the model; embedding and head are the least of all.
  EXPECT_EQ(plan.advance(std::vector<double>{0, 3, 1, 2, 4, 5, 6, 0}).frozen, 3);
  EXPECT_EQ(plan.depth(), 2);
  EXPECT_EQ(plan.advance(std::vector<double>{0, 0, 0, 9, 1, 5, 6, 0}).frozen, 5);
}

TEST(ElasticPlan, WhatCannotBeIsRefused) {
  const std::vector<double> costs(4, 1.0);
  EXPECT_THAT(error_of<InvalidArgument>([&] { ElasticPlan(costs, {.stages = 2, .frozen = 1}); }),
              HasSubstr("expected no frozen layers at the start, found 1"));
  EXPECT_THAT(error_of<InvalidArgument>(
                  [&] { ElasticPlan(costs, {}, {.embedding_layers = 2, .head_layers = 2}); }),
              HasSubstr("leave at least 1 of 4, found 2 and 2"));
  ElasticPlan plan(costs, {});
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                plan.advance(std::vector<double>{1, 2});
              }),
              HasSubstr("expected the gradient norms of 4 layers, found 2"));
  EXPECT_THROW(ElasticPlan(costs, {.stages = 5}), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::testing
