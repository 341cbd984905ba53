#include "tools/bfrun/job/monitor/attendance.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/bfrun/job/monitor/job_monitor.hpp"

namespace bluefog::bfrun {
namespace {

using namespace std::chrono_literals;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Kind = RankReport::Kind;

RankReport report_of(int rank, Kind kind, int exit_code = 0) {
  RankReport report;
  report.kind = kind;
  report.rank = rank;
  report.pid = 100 + rank;
  report.host = rank < 2 ? "a" : "b";
  report.placement = {2, 1, 1};
  report.exit_code = exit_code;
  return report;
}

class AttendanceTest : public testing::Test {
 protected:
  void start(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      take(report_of(rank, Kind::Started));
    }
  }
  void join(int rank) { take(report_of(rank, Kind::Joining)); }
  void take(const RankReport& report) { attendance_.take(report, begin_); }

  Attendance::Clock::time_point begin_ = Attendance::Clock::now();
  Attendance attendance_{4, 60s};
};

TEST_F(AttendanceTest, NamesRanksThatTheOthersWaitForOnce) {
  start(4);
  EXPECT_EQ(attendance_.due(), std::nullopt);  // nobody waits
  for (const int rank : {0, 1, 3}) {
    join(rank);
  }
  EXPECT_EQ(attendance_.due(), begin_ + 60s);
  EXPECT_EQ(attendance_.due_line(begin_ + 59s), "");
  EXPECT_EQ(
      attendance_.due_line(begin_ + 60s),
      "3 of 4 ranks have waited 60 s in init (Context::create) for those that have not come to "
      "it: rank 2 on host b (pid 102)");
  EXPECT_EQ(attendance_.due(), std::nullopt);
  EXPECT_EQ(attendance_.due_line(begin_ + 1h), "");
}

TEST_F(AttendanceTest, RanksThatWereNeverHeardOfAreMissing) {
  start(3);
  for (const int rank : {0, 1, 2}) {
    join(rank);
  }
  EXPECT_THAT(attendance_.due_line(begin_ + 60s),
              HasSubstr("it: rank 3, which was never heard of"));
}

TEST_F(AttendanceTest, IsSilentOnceAllHaveCome) {
  start(4);
  for (const int rank : {0, 1, 2, 3}) {
    join(rank);
  }
  EXPECT_EQ(attendance_.due(), std::nullopt);
  take(report_of(0, Kind::Ended, 1));
  EXPECT_EQ(attendance_.failure_line(), "");
}

// No watcher there says when a rank comes.
TEST_F(AttendanceTest, RanksOfHostsWithoutBfrunAreNotMissing) {
  RankReport unwatched = report_of(3, Kind::Started);
  unwatched.placement = {0, 0, 0};
  start(3);
  take(unwatched);
  for (const int rank : {0, 1, 2}) {
    join(rank);
  }
  EXPECT_EQ(attendance_.due_line(begin_ + 60s), "");
}

TEST_F(AttendanceTest, PatienceMayBeEndless) {
  Attendance endless(2, 0ms);
  endless.take(report_of(0, Kind::Started), begin_);
  endless.take(report_of(0, Kind::Joining), begin_);
  EXPECT_EQ(endless.due(), std::nullopt);
}

TEST_F(AttendanceTest, AFailureOfRanksThatWaitTellsForWhomOnce) {
  start(4);
  join(0);
  join(1);
  take(report_of(3, Kind::Ended, 1));  // it did not wait
  EXPECT_EQ(attendance_.failure_line(), "");
  RankReport told = report_of(1, Kind::Ended, 1);
  told.told_to_end = true;
  take(told);
  EXPECT_EQ(attendance_.failure_line(), "");
  take(report_of(0, Kind::Exiting, 1));
  take(report_of(2, Kind::Ended, 1));
  EXPECT_THAT(attendance_.failure_line(),
              HasSubstr("had not come to it: rank 2 on host b (pid 102)"));
  EXPECT_EQ(attendance_.failure_line(), "");
}

TEST(JobMonitor, NamesThoseWhomRanksOnOtherHostsWaitFor) {
  JobMonitor monitor({.ranks = 2, .has_other_hosts = true, .start_patience = 5s});
  const auto begin = JobMonitor::Clock::now();
  for (int rank = 0; rank < 2; ++rank) {
    static_cast<void>(monitor.take(report_of(rank, Kind::Started), begin));
  }
  EXPECT_LT(monitor.time_left(begin), 0ms);
  EXPECT_THAT(monitor.take(report_of(0, Kind::Joining), begin), IsEmpty());
  EXPECT_EQ(monitor.time_left(begin), 5s);
  EXPECT_THAT(monitor.due_lines(begin + 5s),
              ElementsAre(HasSubstr("1 of 2 ranks have waited 5 s")));
  static_cast<void>(monitor.take(report_of(0, Kind::Ended, 1), begin + 6s));
  EXPECT_THAT(monitor.due_lines(begin + 7s),
              ElementsAre(HasSubstr("rank 0 on host a (pid 100) exited with code 1"),
                          HasSubstr("had not come to it: rank 1 on host a (pid 101)")));
}

TEST(JobMonitor, LeavesRanksOfOneHostToTellByThemselves) {
  JobMonitor monitor({.ranks = 2, .start_patience = 5s});
  static_cast<void>(monitor.take(report_of(0, Kind::Joining)));
  EXPECT_LT(monitor.time_left(JobMonitor::Clock::now()), 0ms);
}

}  // namespace
}  // namespace bluefog::bfrun
