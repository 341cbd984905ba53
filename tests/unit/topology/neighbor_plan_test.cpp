#include "topology/neighbor_plan.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

NeighborPlan valid_plan() {
  return {.rank = 1,
          .size = 4,
          .self_weight = 0.5,
          .sources = {{0, 0.25}, {3, 0.25}},
          .destinations = {{2, 1.0}}};
}

/// The message that validate() throws; empty if it accepts the plan.
std::string refusal(const NeighborPlan& plan) {
  try {
    plan.validate();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(NeighborPlan, AcceptsUnequalListsAndNobody) {
  EXPECT_EQ(refusal(valid_plan()), "");
  EXPECT_EQ(refusal(NeighborPlan::alone(3, 4)), "");
  EXPECT_EQ(NeighborPlan::alone(3, 4).self_weight, 1.0);
}

TEST(NeighborPlan, EqualsOnlyWhatIsTheSame) {
  NeighborPlan other = valid_plan();
  EXPECT_EQ(other, valid_plan());
  other.sources[1].weight = 0.5;
  EXPECT_NE(other, valid_plan());
}

TEST(NeighborPlan, RefusesRankOrSizeOutOfRange) {
  NeighborPlan plan = valid_plan();
  plan.rank = 4;
  EXPECT_EQ(refusal(plan), "neighbor plan: rank is 4, expected 0 to 3");
  plan.rank = -1;
  EXPECT_NE(refusal(plan), "");
  plan.size = 0;
  EXPECT_EQ(refusal(plan), "neighbor plan: size is 0, expected at least 1");
}

TEST(NeighborPlan, RefusesNeighboursOutOfRange) {
  NeighborPlan plan = valid_plan();
  plan.sources = {{4, 1.0}};
  EXPECT_EQ(refusal(plan), "neighbor plan of rank 1: sources names rank 4, expected 0 to 3");
  plan = valid_plan();
  plan.destinations = {{-1, 1.0}};
  EXPECT_EQ(refusal(plan), "neighbor plan of rank 1: destinations names rank -1, expected 0 to 3");
}

TEST(NeighborPlan, RefusesItselfDuplicatesAndDisorder) {
  NeighborPlan plan = valid_plan();
  plan.sources = {{1, 1.0}};
  EXPECT_NE(refusal(plan).find("names the rank itself"), std::string::npos);
  plan.sources = {{2, 1.0}, {2, 1.0}};
  EXPECT_NE(refusal(plan).find("names rank 2 twice"), std::string::npos);
  plan.sources = {{3, 1.0}, {2, 1.0}};
  EXPECT_NE(refusal(plan).find("rank 2 after 3"), std::string::npos);
}

TEST(NeighborPlan, RefusesWeightsThatAreNotFinite) {
  NeighborPlan plan = valid_plan();
  plan.self_weight = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(refusal(plan).find("self_weight"), std::string::npos);
  plan = valid_plan();
  plan.destinations[0].weight = std::numeric_limits<double>::infinity();
  EXPECT_NE(refusal(plan).find("destinations gives rank 2"), std::string::npos);
}

}  // namespace
}  // namespace bluefog
