#include "topology/plan_builder.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// The message with which rank 1 of 4 is refused these weights.
std::string refusal_of_weights(const StepWeights& weights) {
  try {
    (void)build_plan(1, 4, weights);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(PlanBuilder, OrdersWhatIsGivenInAnyOrder) {
  const NeighborPlan expected{.rank = 1,
                              .size = 4,
                              .self_weight = 0.5,
                              .sources = {{0, 0.25}, {3, 0.125}},
                              .destinations = {{0, 2.0}, {2, 0.5}}};
  EXPECT_EQ(build_plan(1, 4,
                       {.self_weight = 0.5,
                        .src_weights = {{3, 0.125}, {0, 0.25}},
                        .dst_weights = {{2, 0.5}, {0, 2.0}}}),
            expected);
  const std::map<int, double> sources{{0, 0.25}, {3, 0.125}};
  const std::map<int, double> destinations{{0, 2.0}, {2, 0.5}};
  EXPECT_EQ(
      build_plan(1, 4, {.self_weight = 0.5, .src_weights = sources, .dst_weights = destinations}),
      expected);
}

TEST(PlanBuilder, SendsToAListOfRanksWithWeightOne) {
  const std::vector<WeightedRank> expected{{0, 1.0}, {3, 1.0}};
  EXPECT_EQ(build_plan(1, 4, {.dst_weights = {3, 0}}).destinations, expected);
  const std::vector<int> ranks{3, 0};
  EXPECT_EQ(build_plan(1, 4, {.dst_weights = ranks}).destinations, expected);
}

TEST(PlanBuilder, NothingGivenIsARankAlone) {
  EXPECT_EQ(build_plan(1, 4, {}), NeighborPlan::alone(1, 4));
}

TEST(PlanBuilder, RefusesRanksOutOfRange) {
  EXPECT_EQ(refusal_of_weights({.src_weights = {{0, 0.5}, {4, 0.5}}}),
            "neighbor plan of rank 1: sources names rank 4, expected 0 to 3");
  EXPECT_EQ(refusal_of_weights({.dst_weights = {-1}}),
            "neighbor plan of rank 1: destinations names rank -1, expected 0 to 3");
  EXPECT_THROW((void)build_plan(4, 4, {}), InvalidArgument);
  EXPECT_THROW((void)build_plan(0, 0, {}), InvalidArgument);
}

TEST(PlanBuilder, RefusesTheRankItselfAndRanksNamedTwice) {
  EXPECT_NE(refusal_of_weights({.src_weights = {{1, 0.5}}}).find("sources names the rank itself"),
            std::string::npos);
  EXPECT_NE(refusal_of_weights({.dst_weights = {0, 1}}).find("destinations names the rank itself"),
            std::string::npos);
  EXPECT_EQ(refusal_of_weights({.dst_weights = {2, 0, 2}}),
            "neighbor plan of rank 1: destinations names rank 2 twice");
  EXPECT_EQ(refusal_of_weights({.src_weights = {{2, 0.5}, {0, 0.5}, {2, 0.25}}}),
            "neighbor plan of rank 1: sources names rank 2 twice");
}

TEST(PlanBuilder, RefusesWeightsThatAreNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_NE(refusal_of_weights({.self_weight = nan}).find("self_weight is nan"), std::string::npos);
  EXPECT_NE(refusal_of_weights({.src_weights = {{0, infinity}}})
                .find("sources gives rank 0 the weight inf"),
            std::string::npos);
  EXPECT_NE(refusal_of_weights({.dst_weights = {{0, -infinity}}})
                .find("destinations gives rank 0 the weight -inf"),
            std::string::npos);
}

}  // namespace
}  // namespace bluefog
