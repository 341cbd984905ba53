#include "bluefog_cpp/bftrace/merge.hpp"

#include <gtest/gtest.h>

#include <string>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::tracing {
namespace {

const std::string kEvents =
    R"([{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"rank 1"}},
{"name":"A","ph":"B","ts":100.5,"pid":1,"tid":1},
{"ph":"E","ts":103.5,"pid":1,"tid":1})";

TEST(MergeTimelines, TimesBeginWithTheEarliestEvent) {
  const auto one = parse_timeline("a", kEvents + "\n]\n");
  const auto other = parse_timeline("b", R"([{"name":"B","ph":"B","ts":98.5,"pid":0,"tid":1}])");
  const auto merged = merge_timelines({one, other});
  ASSERT_EQ(merged.size(), 4U);
  EXPECT_EQ(merged[1]["ts"], 2.0);
  EXPECT_EQ(merged[3]["ts"], 0.0);
  EXPECT_EQ(merged[3]["pid"], 0);
}

TEST(MergeTimelines, AFileWithoutItsEndCountsAsFarAsItGoes) {
  EXPECT_EQ(parse_timeline("a", kEvents).size(), 3U);
  EXPECT_EQ(parse_timeline("a", kEvents + ",\n").size(), 3U);
  EXPECT_EQ(parse_timeline("a", kEvents + R"(,
{"name":"C","args":{"x":1},"ph)")
                .size(),
            3U);
}

TEST(MergeTimelines, OtherFilesAreRefused) {
  EXPECT_THROW((void)parse_timeline("a", R"({"rank": 0})"), InvalidArgument);
  EXPECT_THROW((void)parse_timeline("a", "[1, 2]"), InvalidArgument);
  EXPECT_THROW((void)parse_timeline("a", "hello }"), InvalidArgument);
  EXPECT_THROW((void)read_file("/nonexistent/file"), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::tracing
