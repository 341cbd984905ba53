#include "optimizers/wrapper/step_counts.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace bluefog::optimizers {
namespace {

TEST(StepCounts, EveryKthStepIsARound) {
  StepCounts counts(3);
  for (std::int64_t step = 0; step < 7; ++step) {
    EXPECT_EQ(counts.steps(), step);
    EXPECT_EQ(counts.rounds(), step / 3);
    EXPECT_EQ(counts.communicates_next(), step % 3 == 2);
    EXPECT_EQ(counts.is_between_rounds(), step % 3 != 0);
    counts.count_step();
  }
  StepCounts always(1);
  always.count_step();
  EXPECT_TRUE(always.communicates_next());
  EXPECT_FALSE(always.is_between_rounds());
  EXPECT_EQ(always.rounds(), 1);
}

TEST(StepCounts, SkippedStepsAreNoRounds) {
  StepCounts counts(4);
  counts.skip(3);
  EXPECT_TRUE(counts.communicates_next());
  EXPECT_EQ(counts.rounds(), 0);
  counts.count_step();
  EXPECT_EQ(counts.steps(), 4);
  EXPECT_EQ(counts.rounds(), 1);
  counts.skip(8);
  EXPECT_EQ(counts.rounds(), 1);
}

TEST(StepCounts, GoOnFromSavedOnes) {
  StepCounts counts(2);
  counts.count_step();
  counts.resume(7, 2);
  EXPECT_EQ(counts.steps(), 7);
  EXPECT_EQ(counts.rounds(), 2);
  EXPECT_TRUE(counts.communicates_next());
  counts.count_step();
  EXPECT_EQ(counts.rounds(), 3);
}

}  // namespace
}  // namespace bluefog::optimizers
