#include "bluefog_cpp/base/nearest_name.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace bluefog {
namespace {

constexpr std::array<std::string_view, 3> kNames{"TIMEOUT", "TIMELINE", "LOG_LEVEL"};

TEST(NearestName, IsTheOneOfTheFewestChanges) {
  EXPECT_EQ(nearest_name(kNames, "TIMOUT"), "TIMEOUT");
  EXPECT_EQ(nearest_name(kNames, "TIMELIN"), "TIMELINE");
  EXPECT_EQ(nearest_name(kNames, "LOG_LEVEL"), "LOG_LEVEL");
}

TEST(NearestName, IsEmptyWhereAllAreFar) {
  EXPECT_EQ(nearest_name(kNames, "FOO"), "");
  EXPECT_EQ(nearest_name(kNames, "TIMES"), "") << "two changes of five characters";
  EXPECT_EQ(nearest_name(kNames, ""), "");
  EXPECT_EQ(nearest_name({}, "TIMEOUT"), "");
}

}  // namespace
}  // namespace bluefog
