#include "tools/bftrace/merge.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog::bftrace {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_EQ(parse_timeline("a", kEvents).events.size(), 3U);
  EXPECT_EQ(parse_timeline("a", kEvents + ",\n").events.size(), 3U);
  EXPECT_EQ(parse_timeline("a", kEvents + R"(,
{"name":"C","args":{"x":1},"ph)")
                .events.size(),
            3U);
  for (const char* const begun : {"", "[", "[{\"name\":\"process"}) {
    EXPECT_EQ(parse_timeline("a", begun).events.size(), 0U) << begun;
  }
}

/// "" or why `text` is no timeline.
std::string refusal(const std::string& text) {
  try {
    (void)parse_timeline("file.json", text);
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(MergeTimelines, OtherFilesAreRefused) {
  const std::string expected =
      "file.json: expected the timeline of a rank (a JSON array of trace events)";
  EXPECT_EQ(refusal(R"({"rank": 0})"), expected + ", found object");
  for (const char* const text : {"hello", "hello }", R"([{"ph":"M","pid":0}] and more)"}) {
    EXPECT_EQ(refusal(text), expected + ", found no JSON") << text;
  }
  EXPECT_EQ(refusal("[1, 2]"), expected + "; event 0: expected an object, found number");
  struct Case {
    const char* fields;
    const char* problem;
  };
  for (const Case& wrong :
       {Case{R"("ph":"B","pid":0)", R"(expected a number as "ts", found none)"},
        Case{R"("ph":"B","pid":0,"ts":"1.5")", R"(expected a number as "ts", found "1.5")"},
        Case{R"("ph":"X","pid":0,"ts":1,"dur":[])", R"(expected a number as "dur", found [])"},
        Case{R"("ph":7,"pid":0,"ts":1)", R"(expected one letter as "ph", found 7)"},
        Case{R"("ph":"BE","pid":0,"ts":1)", R"(expected one letter as "ph", found "BE")"},
        Case{R"("pid":0,"ts":1)", R"(expected one letter as "ph", found none)"},
        Case{R"("ph":"B","pid":"0","ts":1)", R"(expected a rank as "pid", found "0")"},
        Case{R"("ph":"B","pid":-1,"ts":1)", R"(expected a rank as "pid", found -1)"},
        Case{R"("ph":"B","pid":0,"ts":1,"tid":0.5)", R"(expected an integer as "tid", found 0.5)"},
        Case{R"("ph":"B","pid":0,"ts":1,"name":{})", R"(expected a text as "name", found {})"}}) {
    EXPECT_EQ(refusal(fmt::format(R"([{{"ph":"M","pid":0}},{{{}}}])", wrong.fields)),
              fmt::format("{}; event 1: {}", expected, wrong.problem));
  }
  EXPECT_THROW((void)read_file("/nonexistent/file"), InvalidArgument);
}

TEST(MergeTimelines, ValuesThatAreNestedWithoutEndAreRefused) {
  const auto nested = [](std::size_t levels) {
    return R"([{"ph":"M","pid":0,"args":)" + std::string(levels, '[') + std::string(levels, ']') +
           "}]";
  };
  EXPECT_EQ(merge_timelines({parse_timeline("a", nested(50))}).size(), 1U);
  for (const std::size_t levels : {1'000, 1'000'000}) {
    EXPECT_EQ(refusal(nested(levels)),
              "file.json: expected values in at most 100 levels, found more");
  }
}

TEST(MergeTimelines, AMessageQuotesTheBeginOfALongValue) {
  const std::string found =
      refusal(R"([{"ph":"B","pid":0,"ts":")" + std::string(5000, 'x') + R"("}])");
  EXPECT_THAT(found, HasSubstr(R"(found "xxxx)"));
  EXPECT_LT(found.size(), 300U);
}

TEST(MergeTimelines, TimesThatNoClockShowsAreRefused) {
  EXPECT_THAT(refusal(R"([{"ph":"B","pid":0,"ts":-1e308}])"), HasSubstr(R"(a number as "ts")"));
}

class MergeFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "merge_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const int rank : {0, 1}) {
      std::ofstream(path(rank)) << fmt::format(R"([{{"name":"A","ph":"B","ts":9,"pid":{}}}])",
                                               rank);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(int rank) const {
    return folder_ / fmt::format("rank{}.json", rank);
  }
  /// "" or why they are not joined.
  [[nodiscard]] std::string refusal(const std::vector<std::string>& paths,
                                    const std::string& output) const {
    try {
      merge_files(paths, output);
      return "";
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  }

  std::filesystem::path folder_;
};

TEST_F(MergeFiles, WritesWhatItHasJoined) {
  const std::string output = folder_ / "all.json";
  const Joined joined = merge_files({path(0), path(1)}, output);
  EXPECT_EQ(joined.events, 2U);
  EXPECT_TRUE(joined.without_end.empty());
  EXPECT_EQ(nlohmann::json::parse(read_file(output))[1]["pid"], 1);
  EXPECT_FALSE(std::filesystem::exists(output + ".part"));
}

TEST_F(MergeFiles, FilesThatEndInTheMiddleAreNamed) {
  std::ofstream(path(1)) << R"([{"name":"A","ph":"B","ts":9,"pid":1},)";
  const Joined joined = merge_files({path(0), path(1)}, folder_ / "all.json");
  EXPECT_EQ(joined.events, 2U);
  EXPECT_EQ(joined.without_end, std::vector<std::string>{path(1)});
}

TEST_F(MergeFiles, FilesWithoutAnEventAreRefused) {
  std::ofstream(path(0)) << "";
  std::ofstream(path(1)) << "[]";
  EXPECT_THAT(refusal({path(0), path(1)}, folder_ / "all.json"),
              HasSubstr("expected an event in one of 2 files"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "all.json"));
}

TEST_F(MergeFiles, WhatItHasJoinedIsNoRanksTimeline) {
  const std::string output = folder_ / "all.json";
  merge_files({path(0), path(1)}, output);
  EXPECT_THAT(refusal({path(0), output}, folder_ / "more.json"), HasSubstr("give the files that"));
  merge_files({path(1)}, output);
  EXPECT_THAT(refusal({path(0), output}, folder_ / "more.json"), HasSubstr("give the files that"));
  EXPECT_THAT(refusal({path(0), path(1), path(0)}, output),
              HasSubstr(fmt::format("found two of rank 0: {0} and {0}", path(0))));
}

TEST_F(MergeFiles, LeavesTheOutputWhereItFails) {
  const std::string before = read_file(path(0));
  const std::string other_way = folder_ / "." / "rank0.json";
  EXPECT_THAT(refusal({path(0), path(1)}, other_way),
              HasSubstr("found " + path(0) + " among them"));
  EXPECT_EQ(read_file(path(0)), before);
  EXPECT_THAT(refusal({path(1), folder_ / "none.json"}, path(0)), HasSubstr("cannot read"));
  EXPECT_EQ(read_file(path(0)), before);
  EXPECT_THAT(refusal({path(1)}, folder_ / "none" / "all.json"),
              HasSubstr("all.json: No such file or directory"));
  EXPECT_THAT(refusal({path(1)}, folder_), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace bluefog::bftrace
