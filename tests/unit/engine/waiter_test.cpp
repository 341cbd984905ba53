#include "bluefog_cpp/engine/waiter.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace bluefog {
namespace {

using std::chrono::microseconds;
using Step = Waiter::Step;

constexpr WaitPolicy kPolicy{.spins = 80, .yields = 3};

/// Steps until the first sleep.
int looks_before_sleep(Waiter& waiter, Step kind) {
  int count = 0;
  for (Step step = waiter.next(); step != Step::Sleep; step = waiter.next()) {
    count += step == kind ? 1 : 0;
  }
  return count;
}

TEST(Waiter, SpinsThenYieldsThenSleeps) {
  Waiter waiter(kPolicy);
  std::vector<Step> steps;
  for (int i = 0; i < 85; ++i) {
    steps.push_back(waiter.next());
  }
  std::vector<Step> expected(80, Step::Spin);
  expected.insert(expected.end(), 3, Step::Yield);
  expected.insert(expected.end(), 2, Step::Sleep);
  EXPECT_EQ(steps, expected);
}

TEST(Waiter, SpinsForHalfAsLongAfterItWasInVainDownToAnEighth) {
  Waiter waiter(kPolicy);
  for (const int spins : {80, 40, 20, 10, 10}) {
    EXPECT_EQ(looks_before_sleep(waiter, Step::Spin), spins);
    waiter.moved();
  }
  EXPECT_EQ(looks_before_sleep(waiter, Step::Yield), kPolicy.yields);
}

TEST(Waiter, SpinsAsLongAgainWhereItWasNot) {
  Waiter waiter(kPolicy);
  for (int i = 0; i < 5; ++i) {
    (void)waiter.next();
    waiter.moved();
  }
  EXPECT_EQ(looks_before_sleep(waiter, Step::Spin), kPolicy.spins);
}

TEST(Waiter, OfTheBackgroundSleepsAtOnceAlsoAfterAMove) {
  Waiter waiter = Waiter::background(kPolicy);
  EXPECT_EQ(waiter.next(), Step::Sleep);
  waiter.moved();
  EXPECT_EQ(waiter.next(), Step::Sleep);
}

TEST(Waiter, PollsLessAndLessOftenAndGoesBackByQuarters) {
  Waiter waiter(kPolicy);
  for (const int time : {50, 100, 200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(waiter.sleep_time(true), microseconds(time));
  }
  waiter.moved();
  EXPECT_EQ(waiter.sleep_time(true), microseconds(250));
  waiter.moved();
  waiter.moved();
  waiter.moved();
  EXPECT_EQ(waiter.sleep_time(true), microseconds(50));
  EXPECT_EQ(waiter.sleep_time(false), Waiter::kCheckPeriod);
}

TEST(Waiter, ChecksEachPeriodAndStartsTheClockAnewWithProgress) {
  Waiter waiter({.stall_warning = Waiter::kCheckPeriod, .timeout = 2 * Waiter::kCheckPeriod});
  const auto begin = Waiter::Clock::now();
  const auto at = [&](int periods) { return begin + periods * Waiter::kCheckPeriod; };
  EXPECT_FALSE(waiter.check_due(at(0), 1));
  EXPECT_TRUE(waiter.check_due(at(1), 1));
  EXPECT_TRUE(waiter.warning_due());
  EXPECT_FALSE(waiter.warning_due());  // once
  EXPECT_FALSE(waiter.timed_out());
  EXPECT_TRUE(waiter.check_due(at(2), 2));
  EXPECT_EQ(waiter.stalled(), std::chrono::milliseconds(0));
  EXPECT_TRUE(waiter.check_due(at(4), 2));
  EXPECT_TRUE(waiter.timed_out());
}

}  // namespace
}  // namespace bluefog
