#include "bluefog_cpp/bfrun/job_monitor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace bluefog::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RankReport started(int rank, const std::string& host = "a") {
  RankReport report;
  report.rank = rank;
  report.pid = 100 + rank;
  report.host = host;
  report.placement = {2, 1, 1};
  return report;
}

RankReport ended(int rank, int exit_code, int killed_by = 0) {
  RankReport report = started(rank);
  report.kind = RankReport::Kind::Ended;
  report.exit_code = exit_code;
  report.killed_by = killed_by;
  return report;
}

TEST(JobMonitor, NamesRanksThatFailedByThemselves) {
  JobMonitor monitor({.ranks = 3});
  EXPECT_THAT(monitor.take(ended(0, 0)), IsEmpty());
  EXPECT_THAT(monitor.take(ended(2, 0, SIGKILL)),
              ElementsAre("rank 2 on host a (pid 102) was killed by signal 9 (SIGKILL)"));
  RankReport told = ended(1, 0, SIGTERM);
  told.told_to_end = true;
  EXPECT_THAT(monitor.take(told), IsEmpty());
  EXPECT_EQ(monitor.exit_code({137, 0}), 137);
}

TEST(JobMonitor, CountsWhenManyFail) {
  JobMonitor monitor({.ranks = 20});
  int lines = 0;
  for (int rank = 0; rank < 20; ++rank)
    lines += static_cast<int>(monitor.take(ended(rank, 1)).size());
  EXPECT_EQ(lines, 16);
  EXPECT_THAT(monitor.closing_lines(), ElementsAre("4 more ranks failed"));
}

TEST(JobMonitor, ExitCodeIsThatOfMpirun) {
  const JobMonitor monitor({.ranks = 1});
  EXPECT_EQ(monitor.exit_code({0, 0}), 0);
  EXPECT_EQ(monitor.exit_code({3, 0}), 3);
  EXPECT_EQ(monitor.exit_code({0, SIGKILL}), 137);
}

TEST(JobMonitor, FaultTolerantJobsFailWithTheFirstRankThatDid) {
  JobMonitor monitor({.ranks = 3, .fault_tolerant = true});
  for (int rank = 0; rank < 3; ++rank) static_cast<void>(monitor.take(started(rank)));
  static_cast<void>(monitor.take(ended(1, 0, SIGSEGV)));
  static_cast<void>(monitor.take(ended(0, 5)));
  static_cast<void>(monitor.take(ended(2, 0)));
  EXPECT_EQ(monitor.exit_code({0, 0}), 128 + SIGSEGV);
  EXPECT_THAT(monitor.closing_lines(), IsEmpty());
}

TEST(JobMonitor, ARankThatNeverSaidHowItEndedIsAFailure) {
  JobMonitor monitor({.ranks = 2, .fault_tolerant = true});
  for (int rank = 0; rank < 2; ++rank) static_cast<void>(monitor.take(started(rank)));
  static_cast<void>(monitor.take(ended(0, 0)));
  EXPECT_EQ(monitor.exit_code({0, 0}), 1);
  EXPECT_THAT(monitor.closing_lines(), ElementsAre(HasSubstr("rank 1 on host a (pid 101)")));
}

TEST(JobMonitor, AJobToldToEndEndsBySignal) {
  JobMonitor monitor({.ranks = 1});
  monitor.take_signal(SIGUSR1);
  EXPECT_EQ(monitor.exit_code({1, 0}), 1);
  monitor.take_signal(SIGTERM);
  EXPECT_EQ(monitor.exit_code({1, 0}), 143);
  EXPECT_EQ(monitor.exit_code({0, 0}), 0);
}

TEST(JobMonitor, AFailureBeforeTheSignalCounts) {
  JobMonitor monitor({.ranks = 1});
  static_cast<void>(monitor.take(ended(0, 3)));
  monitor.take_signal(SIGTERM);
  EXPECT_EQ(monitor.exit_code({3, 0}), 3);
}

TEST(JobMonitor, AnnouncesPlacementOnceAllHaveStarted) {
  JobMonitor same({.ranks = 2, .announce_placement = true});
  EXPECT_THAT(same.take(started(1, "b")), IsEmpty());
  EXPECT_THAT(same.take(started(0, "a")),
              ElementsAre("2 ranks on 2 hosts, 1 core each (bound), 1 thread per rank"));
  JobMonitor differing({.ranks = 2, .announce_placement = true});
  RankReport other = started(1, "b");
  other.placement = {8, 0, 8};
  static_cast<void>(differing.take(other));
  EXPECT_THAT(differing.take(started(0, "a")),
              ElementsAre("host a: 1 rank on 1 host, 1 core each (bound), 1 thread per rank",
                          "host b: 1 rank on 1 host, not bound (8 cores), 8 threads per rank"));
}

}  // namespace
}  // namespace bluefog::launcher
