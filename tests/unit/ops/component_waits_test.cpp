#include "bluefog_cpp/context/component_waits.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace bluefog {
namespace {

using std::chrono::microseconds;

void sum(ComponentWaits& waits, int calls, int waited, int formed) {
  for (int call = 0; call < calls && waits.begin(); ++call) {
    waits.note_sum(microseconds(waited), microseconds(formed));
  }
}

std::uint32_t rests(ComponentWaits& waits) {
  std::uint32_t calls = 0;
  while (!waits.begin()) {
    ++calls;
  }
  return calls;
}

TEST(ComponentWaits, GoOnWhereTheyCostLessThanTheySave) {
  ComponentWaits waits;
  sum(waits, 1000, 599, 100);
  EXPECT_EQ(waits.sums(), 1000U);
  EXPECT_EQ(waits.resting(), 0U);
}

TEST(ComponentWaits, AreLeftOutWhereTheyCostMore) {
  ComponentWaits waits;
  sum(waits, 15, 610, 100);
  EXPECT_EQ(waits.resting(), 0U);
  sum(waits, 1, 610, 100);
  const std::uint32_t first = rests(waits);
  EXPECT_GE(first, 8U * 16U);
  waits.note_sum(microseconds(610), microseconds(100));  // the call that `rests` has begun
  sum(waits, 15, 610, 100);
  EXPECT_EQ(rests(waits), 2 * first);
}

TEST(ComponentWaits, AreTriedSoonerAgainWhereTheyWereWorthIt) {
  ComponentWaits waits;
  sum(waits, 16, 610, 100);
  const std::uint32_t first = rests(waits);
  waits.note_sum(microseconds(0), microseconds(100));
  sum(waits, 15, 0, 100);
  sum(waits, 16, 610, 100);
  EXPECT_EQ(rests(waits), first);
}

TEST(ComponentWaits, AreLeftOutForAsLongAsAnotherRankRests) {
  ComponentWaits waits;
  EXPECT_TRUE(waits.begin());
  waits.note_refusal(7);
  EXPECT_EQ(waits.resting(), 7U);
  EXPECT_EQ(rests(waits), 7U);
}

TEST(ComponentWaits, AreLeftOutEverLongerWhereABufferCannotBeUsed) {
  ComponentWaits waits;
  std::uint32_t last = 0;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(waits.begin());
    waits.note_refusal(0);
    const std::uint32_t now = waits.resting();
    EXPECT_GT(now, last);
    last = now;
    while (waits.resting() > 0) {
      (void)waits.begin();
    }
  }
  EXPECT_TRUE(waits.begin());
  waits.note_sum(microseconds(0), microseconds(100));
  EXPECT_TRUE(waits.begin());
  waits.note_refusal(0);
  EXPECT_EQ(waits.resting(), 1U);
}

}  // namespace
}  // namespace bluefog
