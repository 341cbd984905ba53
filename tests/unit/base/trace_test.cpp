#include "bluefog_cpp/base/trace/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
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

// Spans that still run are on disk soon: also the first one of a row, whose name comes before it,
// and with nothing after it.
TEST_F(TimelineTest, SpansReachTheFileWhileNothingElseHappens) {
  Timeline timeline(prefix(), 0);
  for (const std::string lane : {"first", "second"}) {
    timeline.begin(lane, "runs in " + lane);
    const auto has_span = [&] {
      const json trace = json::parse(text(0), nullptr, false);
      return !trace.is_discarded() && trace.dump().find("runs in " + lane) != std::string::npos;
    };
    for (int i = 0; i < 500 && !has_span(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(has_span()) << text(0);
  }
}

// Activities that have ended are there at once, in JSON that is whole, however the process ends.
TEST_F(TimelineTest, IsWholeWithoutAnEndOfTheProcess) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Timeline timeline(prefix(), 0);
    for (int i = 0; i < 100; ++i) {
      const Span span(&timeline, "lane", "SPAN");
    }
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const json trace = json::parse(text(0));
  EXPECT_EQ(events_of(trace, "B").size(), 100U);
  EXPECT_EQ(events_of(trace, "E").size(), 100U);
}

TEST_F(TimelineTest, ALaterOneOfTheProcessGoesOn) {
  for (const std::string name : {"FIRST", "SECOND"}) {
    Timeline timeline(prefix(), 0);
    TraceRow one(&timeline, "w");
    TraceRow other(&timeline, "w");
    one.begin(name);
    other.begin(name + " beside");
    const Span span(&timeline, "only " + name, name + " alone");
  }
  const auto spans = spans_of(json::parse(text(0)));
  std::map<std::string, std::string> row_of;
  for (const TraceSpan& span : spans) {
    row_of[span.name] = span.row;
  }
  EXPECT_EQ(row_of, (std::map<std::string, std::string>{{"FIRST", "w"},
                                                        {"FIRST beside", "w (2)"},
                                                        {"FIRST alone", "only FIRST"},
                                                        {"SECOND", "w"},
                                                        {"SECOND beside", "w (2)"},
                                                        {"SECOND alone", "only SECOND"}}));
}

// The file of another process is no part of this one's, however long it is.
TEST_F(TimelineTest, TheFileOfAnotherProcessIsReplaced) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Timeline timeline(prefix(), 0);
    for (int i = 0; i < 1000; ++i) {
      const Span span(&timeline, "lane", "OTHER");
    }
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  { const Timeline timeline(prefix(), 0); }
  EXPECT_EQ(json::parse(text(0)).size(), 1);
}

TEST_F(TimelineTest, OfTwoAtOnceTheSecondWritesNothing) {
  Timeline first(prefix(), 0);
  ::testing::internal::CaptureStderr();
  {
    Timeline second(prefix(), 0);
    second.mark("lane", "second");
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("is being written by another context"));
  first.mark("lane", "first");
  EXPECT_EQ(json::parse(text(0)).size(), 3U);  // process, lane, mark
}

/// Files of this process end at `bytes` while it lives, as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : action_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, action_);
  }

 private:
  void (*action_)(int);
  rlimit before_{};
};

// At every size there is: before, inside and behind an event and the end of the array.
TEST_F(TimelineTest, AFullDiskIsSaidOnceAndLeavesWholeEvents) {
  std::size_t most = 0;
  for (rlim_t bytes = 600; bytes < 800; ++bytes) {
    ::testing::internal::CaptureStderr();
    {
      const FileLimit limit(bytes);
      Timeline timeline(prefix(), 0);
      for (int i = 0; i < 100; ++i) {
        const Span span(&timeline, "lane", "SPAN");
      }
    }
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("_0.json: File too large; what happens from here on is not in it"));
    EXPECT_EQ(said.find("cannot write"), said.rfind("cannot write")) << said;
    const json trace = json::parse(text(0), nullptr, false);
    ASSERT_FALSE(trace.is_discarded()) << bytes << text(0);
    EXPECT_LE(text(0).size(), bytes);
    most = std::max(most, events_of(trace, "B").size());
    std::filesystem::remove(prefix() + "0.json");
  }
  EXPECT_GT(most, 1U);
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
  const json trace = json::parse(text(0));
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
