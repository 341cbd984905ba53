#include "topology/mixing/step_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "topology/mixing/plan_agreement.hpp"
#include "topology/mixing/sender_weights.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t kAny = 1000;

/// 0 → 2 → 4 → 2, 5 → 2, and 1, 3 apart.
StepLinks links_of_example(int rank) {
  static const std::map<int, StepLinks> kLinks{{0, {.sources = {}, .destinations = {2}}},
                                               {2, {.sources = {0, 4, 5}, .destinations = {4}}},
                                               {4, {.sources = {2}, .destinations = {2}}},
                                               {5, {.sources = {}, .destinations = {2}}}};
  const auto it = kLinks.find(rank);
  return it == kLinks.end() ? StepLinks{} : it->second;
}

TEST(StepComponent, HoldsAllThatMessagesTieTogether) {
  for (const int rank : {0, 2, 4, 5}) {
    const auto component = StepComponent::around(rank, kAny, links_of_example);
    ASSERT_TRUE(component);
    EXPECT_THAT(component->ranks(), ElementsAre(0, 2, 4, 5));
    EXPECT_EQ(component->place_of(4), 2U);
    EXPECT_EQ(component->sent_count(1), 1U);
    ASSERT_EQ(component->heard(1).size(), 3U);
    EXPECT_EQ(component->heard(1)[2].from, 3U);
    EXPECT_EQ(component->heard(1)[2].number, 0U);
    EXPECT_EQ(component->heard(0).size(), 0U);
  }
  EXPECT_THAT(StepComponent::around(3, kAny, links_of_example)->ranks(), ElementsAre(3));
}

TEST(StepComponent, CountsAMessageAmongThoseOfItsSender) {
  // 1 sends to 0, 2 and 3.
  const auto component = StepComponent::around(0, kAny, [](int rank) {
    return rank == 1 ? StepLinks{.sources = {}, .destinations = {0, 2, 3}}
                     : StepLinks{.sources = {1}, .destinations = {}};
  });
  EXPECT_EQ(component->heard(0)[0].number, 0U);
  EXPECT_EQ(component->heard(2)[0].number, 1U);
  EXPECT_EQ(component->heard(3)[0].number, 2U);
  EXPECT_EQ(component->heard(3)[0].from, 1U);
}

TEST(StepComponent, IsNoneWithMoreRanksThanAskedFor) {
  EXPECT_TRUE(StepComponent::around(0, 4, links_of_example));
  EXPECT_FALSE(StepComponent::around(0, 3, links_of_example));
}

TEST(StepComponent, IsNoneWithAMessageThatOneEndAloneKnowsOf) {
  const auto around = [](const StepLinks& of_zero, const StepLinks& of_one) {
    return StepComponent::around(0, kAny, [=](int rank) { return rank == 0 ? of_zero : of_one; });
  };
  EXPECT_TRUE(around({.sources = {1}, .destinations = {}}, {.sources = {}, .destinations = {0}}));
  EXPECT_FALSE(around({.sources = {1}, .destinations = {}}, {}));
  EXPECT_FALSE(around({.sources = {}, .destinations = {1}}, {}));
}

TEST(StepComponent, DigestsDifferWhereEdgesDo) {
  const auto ring = topology::ring(4, topology::RingStyle::Right).plan_for(0);
  const auto other = topology::ring(4, topology::RingStyle::Left).plan_for(0);
  const auto digest = [](const NeighborPlan& plan) {
    return plan.step->component_of(plan.rank, kAny)->digest();
  };
  EXPECT_NE(digest(ring), digest(other));
  EXPECT_EQ(digest(ring), digest(topology::ring(4, topology::RingStyle::Right).plan_for(3)));
}

TEST(StepGraph, IsInThePlansOfMatricesAndSchedules) {
  const auto schedule = topology::one_peer_exponential(4);
  EXPECT_THAT(schedule.plan_for(1, 0)->step->component_of(1, kAny)->ranks(),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(schedule.plan_for(1, 1)->step->component_of(1, kAny)->ranks(), ElementsAre(1, 3));
  const auto by_senders = topology::weighed_by_senders(schedule);
  EXPECT_THAT(by_senders.plan_for(2, 1)->step->component_of(2, kAny)->ranks(), ElementsAre(0, 2));
  // A source that makes no matrices.
  const auto one_peer = topology::one_peer(topology::exponential(8));
  const auto plan = one_peer.plan_for(3, 1);
  EXPECT_THAT(plan->step->component_of(3, kAny)->ranks(), ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(plan->step, one_peer.plan_for(5, 1)->step);
  const int lost[]{1};
  EXPECT_THAT(schedule.without(lost).plan_for(3, 1)->step->component_of(3, kAny)->ranks(),
              ElementsAre(3));
}

TEST(StepGraph, OutlivesItsSchedule) {
  const auto plan = topology::one_peer(topology::exponential(8)).plan_for(3, 1);
  EXPECT_THAT(plan->step->component_of(3, kAny)->ranks(), ElementsAre(1, 3, 5, 7));
  const NeighborPlan of_matrix = topology::ring(5).plan_for(2);
  EXPECT_EQ(of_matrix.step->component_of(2, kAny)->size(), 5U);
}

TEST(StepGraph, LooksOnceForAllRanksOfAComponent) {
  int looks = 0;
  const StepGraph graph([&](int rank) {
    ++looks;
    return links_of_example(rank);
  });
  const auto component = graph.component_of(0, kAny);
  EXPECT_EQ(looks, 4);
  EXPECT_EQ(graph.component_of(5, kAny), component);
  EXPECT_EQ(looks, 4);
  EXPECT_EQ(graph.component_of(5, 3), nullptr);
  EXPECT_EQ(looks, 4);
}

TEST(StepGraph, LooksFurtherWhenMoreRanksMayBeIn) {
  int looks = 0;
  const StepGraph graph([&](int rank) {
    ++looks;
    return links_of_example(rank);
  });
  EXPECT_EQ(graph.component_of(0, 2), nullptr);
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(graph.component_of(0, 1), nullptr);
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(graph.component_of(0, 4)->size(), 4U);
}

TEST(StepGraph, CountsNotWherePlansAreCompared) {
  NeighborPlan plan = topology::ring(4).plan_for(0);
  NeighborPlan same = plan;
  same.step = nullptr;
  EXPECT_EQ(plan, same);
}

TEST(EdgeBitmaps, GiveTheLinksBack) {
  NeighborPlan plan = NeighborPlan::alone(3, 19);
  plan.sources = {{0, 1.0}, {8, 1.0}, {18, 1.0}};
  plan.destinations = {{2, 1.0}, {7, 1.0}};
  const StepLinks links = links_in(edge_bitmaps(plan));
  EXPECT_THAT(links.sources, ElementsAre(0, 8, 18));
  EXPECT_THAT(links.destinations, ElementsAre(2, 7));
}

}  // namespace
}  // namespace bluefog
