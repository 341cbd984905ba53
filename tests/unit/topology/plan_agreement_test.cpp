#include "topology/mixing/plan_agreement.hpp"

#include <gtest/gtest.h>

#include <string>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// Directed ring: each rank sends to the next one.
std::vector<NeighborPlan> ring_plans(int size) {
  std::vector<NeighborPlan> plans;
  for (int rank = 0; rank < size; ++rank) {
    plans.push_back({.rank = rank,
                     .size = size,
                     .self_weight = 0.5,
                     .sources = {{(rank + size - 1) % size, 0.5}},
                     .destinations = {{(rank + 1) % size, 1.0}}});
  }
  return plans;
}

std::vector<std::byte> gather(const std::vector<NeighborPlan>& plans) {
  std::vector<std::byte> all;
  for (const NeighborPlan& plan : plans) {
    const std::vector<std::byte> bits = edge_bitmaps(plan);
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}

std::string mismatch(const std::vector<NeighborPlan>& plans) {
  try {
    check_plans_agree(plans);
  } catch (const MismatchError& error) {
    return error.what();
  }
  return "";
}

TEST(PlanAgreement, BitmapsHoldDestinationsThenSources) {
  const NeighborPlan plan{.rank = 1,
                          .size = 10,
                          .self_weight = 1.0,
                          .sources = {{0, 1.0}, {8, 1.0}},
                          .destinations = {{2, 1.0}, {9, 1.0}}};
  const std::vector<std::byte> expected = {std::byte{0x04}, std::byte{0x02}, std::byte{0x01},
                                           std::byte{0x01}};
  EXPECT_EQ(edge_bitmaps(plan), expected);
  EXPECT_EQ(edge_bitmap_bytes(8), 2u);
  EXPECT_EQ(edge_bitmap_bytes(9), 4u);
}

TEST(PlanAgreement, MatchingPlansPass) {
  for (int size = 2; size <= 33; ++size) {
    EXPECT_EQ(mismatch(ring_plans(size)), "") << size;
    EXPECT_TRUE(find_edge_mismatches(size, gather(ring_plans(size))).empty()) << size;
  }
  EXPECT_EQ(mismatch({NeighborPlan::alone(0, 1)}), "");
}

TEST(PlanAgreement, NamesAnUnexpectedSend) {
  std::vector<NeighborPlan> plans = ring_plans(5);
  plans[3].sources.clear();
  EXPECT_EQ(
      mismatch(plans),
      "neighbor plans: senders and receivers do not match: rank 2 sends to rank 3, but rank 3 "
      "does not expect it");
}

TEST(PlanAgreement, NamesAMissingSend) {
  std::vector<NeighborPlan> plans = ring_plans(5);
  plans[4].destinations.clear();
  EXPECT_EQ(mismatch(plans),
            "neighbor plans: senders and receivers do not match: rank 0 expects rank 4, but rank 4 "
            "does not send to it");
}

TEST(PlanAgreement, FindsEveryEdgeInOrder) {
  std::vector<NeighborPlan> plans = ring_plans(17);
  plans[16].destinations = {{9, 1.0}};
  using enum EdgeMismatch::Missing;
  const std::vector<EdgeMismatch> expected = {{16, 0, Send}, {16, 9, Receive}};
  EXPECT_EQ(find_edge_mismatches(17, gather(plans)), expected);
}

TEST(PlanAgreement, MessageStopsAfterEightEdges) {
  std::vector<NeighborPlan> plans = ring_plans(12);
  for (NeighborPlan& plan : plans) {
    plan.sources.clear();
  }
  const std::string message = mismatch(plans);
  EXPECT_NE(message.find("rank 7 sends to rank 8"), std::string::npos);
  EXPECT_EQ(message.find("rank 8 sends to rank 9"), std::string::npos);
  EXPECT_NE(message.find("and 4 more"), std::string::npos);
}

TEST(PlanAgreement, RefusesPlansThatAreNotAllRanksInOrder) {
  std::vector<NeighborPlan> plans = ring_plans(4);
  std::swap(plans[0], plans[1]);
  EXPECT_THROW(check_plans_agree(plans), InvalidArgument);
  EXPECT_THROW(check_plans_agree({}), InvalidArgument);
  plans = ring_plans(4);
  plans.pop_back();
  EXPECT_THROW(check_plans_agree(plans), InvalidArgument);
}

TEST(PlanAgreement, RefusesBytesOfTheWrongLengthOrWithUnknownRanks) {
  std::vector<std::byte> bytes = gather(ring_plans(5));
  bytes.pop_back();
  EXPECT_THROW((void)find_edge_mismatches(5, bytes), InvalidArgument);
  bytes = gather(ring_plans(5));
  bytes[0] |= std::byte{0x80};
  EXPECT_THROW((void)find_edge_mismatches(5, bytes), InvalidArgument);
  bytes = gather(ring_plans(5));
  bytes[1] |= std::byte{0x80};
  EXPECT_THROW((void)find_edge_mismatches(5, bytes), InvalidArgument);
  std::vector<std::byte> room(1);
  EXPECT_THROW(write_edge_bitmaps(ring_plans(16)[0], room), InvalidArgument);
}

}  // namespace
}  // namespace bluefog
