#include "pipeline/freeze_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using pipeline::freeze_bound;
using pipeline::FreezeSchedule;
using pipeline::LastLayer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> bounds(int layers, double alpha, int times) {
  std::vector<int> found;
  for (int t = 1; t <= times; ++t) {
    found.push_back(freeze_bound(layers, alpha, t));
  }
  return found;
}

TEST(FreezeSchedule, BoundsArePipeTransformers) {
  EXPECT_EQ(freeze_bound(12, 0.5, 0), 0);
  EXPECT_EQ(freeze_bound(10, 0.3, 1), 3) << "whose product is a rounding above 3";
  EXPECT_EQ(freeze_bound(90, 0.3, 1), 27);
  EXPECT_THAT(bounds(12, 1.0 / 2, 4), ElementsAre(6, 9, 11, 12));
  EXPECT_THAT(bounds(12, 1.0 / 3, 7), ElementsAre(4, 7, 9, 10, 11, 11, 12));
  EXPECT_THAT(bounds(24, 1.0 / 3, 8), ElementsAre(8, 14, 17, 20, 21, 22, 23, 24));
}

/// Equation 1 as it is published: a recursion over all decisions before.
TEST(FreezeSchedule, BoundsAreThoseOfThePublishedSum) {
  for (const int layers : {1, 2, 7, 12, 24, 96}) {
    for (const double alpha : {0.05, 0.2, 0.25, 1.0 / 3, 0.5, 0.9}) {
      for (int times = 1; times <= 12; ++times) {
        double sum = alpha * layers / (1 - alpha);
        for (int t = 2; t <= times; ++t) {
          sum += alpha * layers / std::pow(1 - alpha, t);
        }
        const double published = std::pow(1 - alpha, times) * sum;
        EXPECT_EQ(freeze_bound(layers, alpha, times), static_cast<int>(std::ceil(published - 1e-9)))
            << layers << " layers, alpha " << alpha << ", T " << times;
      }
    }
  }
}

TEST(FreezeSchedule, ByTheBoundAloneTheLastLayerStays) {
  FreezeSchedule schedule({.layers = 12, .alpha = 0.5});
  EXPECT_EQ(schedule.depth(), 0);
  std::vector<int> depths;
  for (int t = 0; t < 5; ++t) {
    depths.push_back(schedule.advance());
  }
  EXPECT_THAT(depths, ElementsAre(6, 9, 11, 11, 11));
  EXPECT_EQ(schedule.times(), 5);
  FreezeSchedule all({.layers = 12, .alpha = 0.5, .last = LastLayer::MayFreeze});
  for (int t = 0; t < 4; ++t) {
    static_cast<void>(all.advance());
  }
  EXPECT_EQ(all.depth(), 12);
  EXPECT_EQ(all.advance({}), 12);
}

TEST(FreezeSchedule, TheLeastGradientLimitsTheDepth) {
  FreezeSchedule schedule({.layers = 6, .alpha = 0.5});
  // Bound 3, least of layer 2.
  EXPECT_EQ(schedule.advance(std::vector<double>{3, 1, 2, 4, 5, 6}), 2);
  // Bound 5, least of layer 6: unfrozen are 3 to 6.
  EXPECT_EQ(schedule.advance(std::vector<double>{4, 3, 2, 1}), 5);
  // Two alike: the first. The depth stays where it is, whatever is least.
  EXPECT_EQ(schedule.advance(std::vector<double>{1}), 5);
  FreezeSchedule alike({.layers = 6, .alpha = 0.5});
  EXPECT_EQ(alike.advance(std::vector<double>{2, 1, 1, 2, 2, 2}), 2);
}

TEST(FreezeSchedule, TheDepthNeverFalls) {
  FreezeSchedule schedule({.layers = 8, .alpha = 0.6});
  int before = 0;
  for (int t = 0; t < 20; ++t) {
    const int unfrozen = 8 - schedule.depth();
    std::vector<double> norms(static_cast<std::size_t>(unfrozen), 1.0);
    norms[static_cast<std::size_t>(t % unfrozen)] = 0.5;
    const int depth = schedule.advance(norms);
    EXPECT_GE(depth, before);
    EXPECT_LE(depth, freeze_bound(8, 0.6, t + 1));
    before = depth;
  }
}

TEST(FreezeSchedule, WhatCannotBeIsRefused) {
  EXPECT_THAT(error_of<InvalidArgument>([] { FreezeSchedule({.layers = 0}); }),
              HasSubstr("expected at least 1 layer, found 0"));
  for (const double alpha : {0.0, 1.0, -0.5, std::nan("")}) {
    EXPECT_THAT(error_of<InvalidArgument>([&] { static_cast<void>(freeze_bound(3, alpha, 1)); }),
                HasSubstr("an alpha between 0 and 1"));
  }
  EXPECT_THROW(static_cast<void>(freeze_bound(3, 0.5, -1)), InvalidArgument);
  FreezeSchedule schedule({.layers = 3});
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                schedule.advance(std::vector<double>{1, 2});
              }),
              HasSubstr("expected 3 gradient norms, one of each layer from 1 to 3, found 2"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                schedule.advance(std::vector<double>{1, std::nan(""), 2});
              }),
              HasSubstr("of layer 2"));
  EXPECT_EQ(schedule.times(), 0);
}

}  // namespace
}  // namespace bluefog::testing
