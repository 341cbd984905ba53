#include "tools/bfrun/job/rank_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RankReport sample() {
  RankReport report;
  report.kind = RankReport::Kind::Ended;
  report.rank = 3;
  report.local_rank = 1;
  report.local_size = 2;
  report.pid = 4711;
  report.placement = {8, 4, 4};
  report.exit_code = 0;
  report.killed_by = 9;
  report.told_to_end = true;
  report.ended_at_us = 1'800'000'000'123'456;
  report.host = "node7.cluster";
  return report;
}

TEST(RankReport, ArrivesAsSentBetweenOtherText) {
  ReportFilter filter("key");
  EXPECT_EQ(filter.feed("half a line" + encode(sample(), "key") + "the rest\n"),
            "half a linethe rest\n");
  EXPECT_THAT(filter.take_reports(), ElementsAre(sample()));
  EXPECT_THAT(filter.take_reports(), IsEmpty());
  EXPECT_EQ(filter.finish(), "");
}

TEST(RankReport, MayBeCutAnywhere) {
  const std::string text = "before" + encode(sample(), "key") + "after";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    ReportFilter filter("key");
    std::string others = filter.feed(text.substr(0, cut));
    others += filter.feed(text.substr(cut));
    EXPECT_EQ(others, "beforeafter") << cut;
    EXPECT_EQ(filter.take_reports().size(), 1U) << cut;
  }
}

TEST(RankReport, WhatIsNoReportGoesThrough) {
  const std::string open =
      "\x1e"
      "bfrun:key:";
  const std::vector<std::string> texts{"plain\n",
                                       encode(sample(), "other"),
                                       "\x1e\x1e\x1e",
                                       open + "nonsense\x1e",
                                       open + "end 1 2\x1e",
                                       open + std::string(600, 'x'),
                                       open.substr(0, 6)};
  for (const auto& text : texts) {
    ReportFilter filter("key");
    std::string others = filter.feed(text);
    others += filter.finish();
    EXPECT_EQ(others, text);
    EXPECT_THAT(filter.take_reports(), IsEmpty());
  }
}

TEST(RankReport, IsFoundAfterAFalseStart) {
  ReportFilter filter("key");
  EXPECT_EQ(filter.feed("\x1e"
                        "bfrun:k" +
                        encode(sample(), "key")),
            "\x1e"
            "bfrun:k");
  EXPECT_EQ(filter.take_reports().size(), 1U);
}

TEST(RankReport, FitsInOnePieceOfAPipe) {
  RankReport report = sample();
  report.host = std::string(2000, 'h');
  EXPECT_LE(encode(report, "0123456789abcdef").size(), 512U);
}

TEST(RankReport, SaysHowTheRankEnded) {
  RankReport report = sample();
  EXPECT_EQ(describe_end(report),
            "rank 3 on host node7.cluster (pid 4711) was killed by signal 9 (SIGKILL)");
  report.killed_by = 0;
  report.exit_code = 3;
  EXPECT_EQ(describe_end(report), "rank 3 on host node7.cluster (pid 4711) exited with code 3");
}

}  // namespace
}  // namespace bluefog::bfrun
