#include "bluefog_cpp/base/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/trace_events.hpp"

namespace bluefog {
namespace {

using bluefog::testing::spans_of;
using bluefog::testing::TraceSpan;
using nlohmann::json;
using ::testing::HasSubstr;

class TimelineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "timeline_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string prefix() const { return directory_ / "trace_"; }

  [[nodiscard]] std::string text(int rank) const {
    std::ifstream file(prefix() + std::to_string(rank) + ".json");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path directory_;
};

json events_of(const json& trace, const std::string& phase) {
  json result = json::array();
  for (const json& event : trace) {
    if (event.at("ph") == phase) {
      result.push_back(event);
    }
  }
  return result;
}

TEST_F(TimelineTest, WritesNestedSpansOnNamedLanes) {
  {
    Timeline timeline(prefix(), 3);
    const Span outer(&timeline, "layer.\"0\"", "NEIGHBOR_ALLREDUCE");
    const Span inner(&timeline, "layer.\"0\"", "COMMUNICATE");
    timeline.mark("epoch", "start");
  }
  const json trace = json::parse(text(3));
  const json begins = events_of(trace, "B");
  const json ends = events_of(trace, "E");
  ASSERT_EQ(begins.size(), 2);
  ASSERT_EQ(ends.size(), 2);
  EXPECT_EQ(begins[0].at("name"), "NEIGHBOR_ALLREDUCE");
  EXPECT_EQ(begins[1].at("name"), "COMMUNICATE");
  EXPECT_EQ(events_of(trace, "i").size(), 1);
  for (const json& event : trace) {
    EXPECT_EQ(event.at("pid"), 3);
  }
  EXPECT_EQ(begins[0].at("tid"), ends[1].at("tid"));
  EXPECT_LE(begins[0].at("ts"), ends[1].at("ts"));

  std::map<int, std::string> lanes;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "thread_name") {
      lanes[event.at("tid")] = event.at("args").at("name");
    }
  }
  EXPECT_EQ(lanes.at(begins[0].at("tid")), "layer.\"0\"");
  EXPECT_EQ(lanes.size(), 2);
}

TEST_F(TimelineTest, ActivitiesOfOneNameThatOverlapGetRowsOfTheirOwn) {
  {
    Timeline timeline(prefix(), 0);
    TraceRow first(&timeline, "w");
    first.begin("FIRST");
    first.begin("wait");
    TraceRow second(&timeline, "w");
    second.begin("SECOND");
    first.end();
    const auto now = Timeline::Clock::now();
    first.add("copy", now, now);
    first = {};
    second.begin("left open");
    const TraceRow third(&timeline, "w");  // the first row again
    timeline.begin("w", "USER");           // and a third one
    timeline.end("w");
  }
  const auto spans = spans_of(json::parse(text(0)));
  ASSERT_EQ(spans.size(), 6U);
  const auto span = [&](const std::string& name) {
    return *std::ranges::find(spans, name, &TraceSpan::name);
  };
  EXPECT_EQ(span("FIRST").row, "w");
  EXPECT_TRUE(span("FIRST").holds(span("wait")));
  EXPECT_TRUE(span("FIRST").holds(span("copy")));
  EXPECT_EQ(span("SECOND").row, "w (2)");
  EXPECT_TRUE(span("SECOND").holds(span("left open")));
  EXPECT_EQ(span("USER").row, "w (3)");
}

TEST_F(TimelineTest, ARowWithoutATimelineDoesNothing) {
  TraceRow row(nullptr, "w");
  row.begin("A");
  row.end();
  TraceRow other = std::move(row);
  other.close();
  EXPECT_FALSE(other.is_open());
}

TEST_F(TimelineTest, EmptyTimelineIsValid) {
  { const Timeline timeline(prefix(), 0); }
  EXPECT_EQ(json::parse(text(0)).size(), 1);
}

TEST_F(TimelineTest, EndWithoutBeginIsDropped) {
  {
    Timeline timeline(prefix(), 0);
    timeline.end("never begun");
    timeline.begin("lane", "A");
    timeline.end("lane");
    timeline.end("lane");
  }
  const json trace = json::parse(text(0));
  EXPECT_EQ(events_of(trace, "B").size(), 1);
  EXPECT_EQ(events_of(trace, "E").size(), 1);
}

TEST_F(TimelineTest, BytesThatAreNotTextStayValidJson) {
  {
    Timeline timeline(prefix(), 0);
    timeline.mark("lane\xff\n\"\\", "name\x01");
  }
  EXPECT_EQ(json::parse(text(0)).size(), 3);  // process, lane, mark
}

TEST_F(TimelineTest, ThreadsShareOneFile) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 2000;
  {
    Timeline timeline(prefix(), 0);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&timeline, lane = "lane" + std::to_string(t)] {
        for (int i = 0; i < kSpans; ++i) {
          const Span span(&timeline, lane, "SPAN");
        }
      });
    }
  }
  const json trace = json::parse(text(0));
  EXPECT_EQ(events_of(trace, "B").size(), kThreads * kSpans);
  EXPECT_EQ(events_of(trace, "E").size(), kThreads * kSpans);
}

// Written spans are on disk soon, in an array that only lacks its closing bracket: also the first
// span of a row, whose name comes before it, and with nothing after it.
TEST_F(TimelineTest, SpansReachTheFileWhileNothingElseHappens) {
  Timeline timeline(prefix(), 0);
  for (const std::string lane : {"first", "second"}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // all before is written
    timeline.begin(lane, "lonely");
    timeline.end(lane);
    const auto has_span = [&] {
      const std::string written = text(0);
      return written.find(lane) != std::string::npos && written.ends_with('}') &&
             std::count(written.begin(), written.end(), 'E') > (lane == "first" ? 0 : 1);
    };
    for (int i = 0; i < 500 && !has_span(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(has_span()) << text(0);
  }
}

TEST_F(TimelineTest, SurvivesTheDeathOfItsProcess) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Timeline timeline(prefix(), 0);
    timeline.begin("lane", "LAST_WORDS");
    ::sleep(60);
    ::_exit(0);
  }
  for (int i = 0; i < 500 && text(0).find("LAST_WORDS") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const json trace = json::parse(text(0) + "]");
  ASSERT_EQ(events_of(trace, "B").size(), 1);
  EXPECT_EQ(events_of(trace, "B")[0].at("name"), "LAST_WORDS");
}

TEST_F(TimelineTest, RefusesAFileItCannotWrite) {
  const std::string missing = directory_ / "missing" / "trace_";
  try {
    const Timeline timeline(missing, 1);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr(missing + "1.json: No such file"));
  }
}

TEST(Span, WithoutTimelineDoesNothing) {
  const Span span(nullptr, "lane", "name");
  SUCCEED();
}

}  // namespace
}  // namespace bluefog
