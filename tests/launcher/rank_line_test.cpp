#include "tools/bfrun/job/rank_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <vector>

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RankReport report_of(int rank) {
  RankReport report;
  report.rank = rank;
  report.host = "a";
  return report;
}

/// The reports that bfrun has received.
struct Heard {
  std::vector<int> started;
  std::vector<int> ended;

  void serve(RankLine& line) {
    line.serve({[this](const RankReport& report) { started.push_back(report.rank); },
                [this](int rank) { ended.push_back(rank); }});
  }
};

bool is_readable(int descriptor) {
  pollfd source{descriptor, POLLIN, 0};
  return poll(&source, 1, 0) == 1;
}

TEST(RankLine, CarriesReportsAndTellsOfEnds) {
  RankLine line("key-1", 2);
  ASSERT_FALSE(line.place().empty());
  std::optional<RankLineEnd> first(std::in_place, line.place(), "key-1");
  const RankLineEnd second(line.place(), "key-1");
  ASSERT_EQ(first->state(), RankLineEnd::State::Connected);
  EXPECT_TRUE(first->send(report_of(0), "key-1"));
  EXPECT_TRUE(second.send(report_of(1), "key-1"));
  Heard heard;
  EXPECT_TRUE(is_readable(line.descriptor()));
  heard.serve(line);
  EXPECT_THAT(heard.started, ElementsAre(0, 1));
  EXPECT_THAT(heard.ended, IsEmpty());
  first.reset();
  heard.serve(line);
  EXPECT_THAT(heard.ended, ElementsAre(0));
  EXPECT_FALSE(is_readable(line.descriptor()));
}

TEST(RankLine, WatchersLearnOfItsEnd) {
  std::optional<RankLine> line(std::in_place, "key-2", 1);
  const std::string place = line->place();
  const RankLineEnd end(place, "key-2");
  EXPECT_FALSE(is_readable(end.descriptor()));
  line.reset();
  EXPECT_TRUE(is_readable(end.descriptor()));
  EXPECT_FALSE(end.send(report_of(0), "key-2"));
  EXPECT_EQ(RankLineEnd(place, "key-2").state(), RankLineEnd::State::Orphaned);
}

TEST(RankLine, IsOnOneMachine) {
  const RankLine line("key-3", 1);
  EXPECT_EQ(RankLineEnd("another boot/net:[1]", "key-3").state(), RankLineEnd::State::Elsewhere);
  EXPECT_EQ(RankLineEnd("", "key-3").state(), RankLineEnd::State::Elsewhere);
}

TEST(RankLine, DoesNotBelieveWhoHasNotTheKey) {
  RankLine line("key-4", 1);
  const RankLineEnd end(line.place(), "key-4");
  EXPECT_TRUE(end.send(report_of(0), "another"));
  Heard heard;
  heard.serve(line);
  EXPECT_THAT(heard.started, IsEmpty());
}

}  // namespace
}  // namespace bluefog::bfrun
