// The jobs that a monitor ends itself: after a signal, a failure, or the loss of a host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/launcher/rank_ends.hpp"
#include "tools/bfrun/job/monitor/job_monitor.hpp"

namespace bluefog::bfrun {
namespace {

using namespace std::chrono_literals;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(JobMonitor, AnMpirunThatIsStillThereAfterASignalIsKilled) {
  JobMonitor monitor({.ranks = 2});
  const auto begin = JobMonitor::Clock::now();
  static_cast<void>(monitor.take(started(0), begin));
  EXPECT_FALSE(monitor.wants_kill(begin + 1h));
  monitor.take_signal(SIGTERM, begin);
  EXPECT_FALSE(monitor.wants_kill(begin + JobMonitor::kGrace - 1ms));
  EXPECT_EQ(monitor.time_left(begin + 1ms), JobMonitor::kGrace - 1ms);
  EXPECT_TRUE(monitor.wants_kill(begin + JobMonitor::kGrace));
  EXPECT_FALSE(monitor.wants_kill(begin + JobMonitor::kGrace));  // once
  EXPECT_LT(monitor.time_left(begin + JobMonitor::kGrace), 0ms);
  EXPECT_EQ(monitor.exit_code({0, SIGKILL}), 143);
}

TEST(JobMonitor, AnMpirunThatOutlivesItsRanksIsKilled) {
  for (const int code : {0, 3}) {
    JobMonitor monitor({.ranks = 2});
    const auto begin = JobMonitor::Clock::now();
    for (int rank = 0; rank < 2; ++rank) {
      static_cast<void>(monitor.take(started(rank), begin));
    }
    static_cast<void>(monitor.take(ended(0, 0), begin));
    EXPECT_LT(monitor.time_left(begin), 0ms);
    static_cast<void>(monitor.take(ended(1, code), begin));
    static_cast<void>(monitor.due_lines(begin + JobMonitor::kHold));
    EXPECT_EQ(monitor.time_left(begin + 1000ms), JobMonitor::kGrace - 1000ms);
    EXPECT_TRUE(monitor.wants_kill(begin + JobMonitor::kGrace));
    EXPECT_EQ(monitor.exit_code({0, SIGKILL}), code);
    EXPECT_THAT(monitor.closing_lines({0, SIGKILL}),
                ElementsAre("mpirun was still there 3 s after the end of the last rank, and was "
                            "killed"));
  }
}

TEST(JobMonitor, ASignalCutsAJobShortWhoseRanksTakeItWell) {
  for (const bool is_late : {false, true}) {
    JobMonitor monitor({.ranks = 1, .starter = "bfrun"});
    const auto begin = JobMonitor::Clock::now();
    static_cast<void>(monitor.take(started(0), begin));
    if (is_late) {
      static_cast<void>(monitor.take(ended(0, 0), begin));
    }
    monitor.take_signal(SIGTERM, begin);
    static_cast<void>(monitor.take(ended(0, 0), begin));
    EXPECT_EQ(monitor.exit_code(ExitStatus{}), is_late ? 0 : 128 + SIGTERM);
  }
}

TEST(JobMonitor, AJobWhoseRanksHaveOnlyLeftHasFailed) {
  for (const bool has_one_ended : {false, true}) {
    JobMonitor monitor({.ranks = 3, .enough = 1, .starter = "bfrun"});
    const auto begin = JobMonitor::Clock::now();
    for (int rank = 0; rank < 3; ++rank) {
      static_cast<void>(monitor.take(started(rank), begin));
    }
    for (int rank = 0; rank < 3; ++rank) {
      RankReport left = started(rank);
      left.kind = RankReport::Kind::Departed;
      if (rank < 2 || !has_one_ended) {
        static_cast<void>(monitor.take(left, begin));
      }
      static_cast<void>(monitor.take(ended(rank, 0), begin));
    }
    EXPECT_EQ(monitor.exit_code(ExitStatus{}), has_one_ended ? 0 : 1);
    if (!has_one_ended) {
      EXPECT_THAT(monitor.closing_lines(ExitStatus{}),
                  ElementsAre("all ranks have left before the end of their work"));
    }
  }
}

TEST(JobMonitor, AfterAFailureNoRankIsWaitedForThatHasNotStarted) {
  JobMonitor monitor({.ranks = 2});
  const auto begin = JobMonitor::Clock::now();
  static_cast<void>(monitor.take(started(1), begin));
  static_cast<void>(monitor.take(ended(1, 3), begin));
  EXPECT_TRUE(monitor.wants_kill(begin + JobMonitor::kGrace));
  EXPECT_EQ(monitor.exit_code({0, SIGKILL}), 3);
}

TEST(JobMonitor, AFailureEndsTheJobUnlessTheUserWantsItToGoOn) {
  const auto begin = JobMonitor::Clock::now();
  const auto is_killed = [&](MonitoredJob job, const RankReport& end) {
    job.ranks = 2;
    JobMonitor monitor(job);
    for (int rank = 0; rank < 2; ++rank) {
      static_cast<void>(monitor.take(started(rank), begin));
    }
    static_cast<void>(monitor.take(end, begin));
    return monitor.wants_kill(begin + JobMonitor::kFailureGrace);
  };
  EXPECT_TRUE(is_killed({}, ended(0, 3)));
  EXPECT_TRUE(is_killed({}, ended(0, 0, SIGKILL)));
  EXPECT_FALSE(is_killed({}, ended(0, 0)));
  EXPECT_TRUE(is_killed({.fault_tolerant = true}, ended(0, 3)));
  EXPECT_FALSE(is_killed({.fault_tolerant = true}, ended(0, 0, SIGKILL)));
  EXPECT_FALSE(is_killed({.goes_on_after_failure = true}, ended(0, 3)));
  EXPECT_FALSE(is_killed({.enough = 1}, ended(0, 3)));
  EXPECT_TRUE(is_killed({.enough = 2}, ended(0, 3)));
  RankReport exiting = ended(0, 3);  // its watcher will end it
  exiting.kind = RankReport::Kind::Exiting;
  EXPECT_FALSE(is_killed({}, exiting));
}

/// Two ranks on each of two hosts, of which rank 1 has ended.
JobMonitor on_two_hosts(MonitoredJob job, JobMonitor::Clock::time_point begin) {
  job.ranks = 4;
  job.host_silence = 60s;
  JobMonitor monitor(job);
  for (int rank = 0; rank < 4; ++rank) {
    static_cast<void>(monitor.take(started(rank, rank < 2 ? "a" : "b"), begin));
  }
  static_cast<void>(monitor.take(ended(1, 0), begin));
  return monitor;
}

TEST(JobMonitor, AHostThatIsLostEndsTheJob) {
  const auto begin = JobMonitor::Clock::now();
  JobMonitor monitor = on_two_hosts({}, begin);
  EXPECT_THAT(monitor.take_loss(3, "it is silent", begin),
              ElementsAre("host b is lost, with ranks 2, 3: it is silent"));
  EXPECT_THAT(monitor.take_loss(2, "it is silent", begin), IsEmpty());
  EXPECT_THAT(monitor.take_loss(1, "it had ended", begin), IsEmpty());
  EXPECT_EQ(monitor.time_left(begin), JobMonitor::kGrace);
  EXPECT_FALSE(monitor.wants_kill(begin + JobMonitor::kGrace - 1ms));
  EXPECT_TRUE(monitor.wants_kill(begin + JobMonitor::kGrace));
  EXPECT_EQ(monitor.exit_code({0, SIGKILL}), 1);
  EXPECT_THAT(
      monitor.closing_lines({0, SIGKILL}),
      ::testing::Contains("mpirun was still there 3 s after the loss of host b, and was killed"));
}

TEST(JobMonitor, WithoutALostHostTheOthersMayGoOn) {
  const auto begin = JobMonitor::Clock::now();
  for (const MonitoredJob& job :
       {MonitoredJob{.fault_tolerant = true}, MonitoredJob{.goes_on_after_failure = true}}) {
    JobMonitor monitor = on_two_hosts(job, begin);
    EXPECT_THAT(monitor.take_loss(2, "it is silent", begin), ::testing::SizeIs(1));
    EXPECT_LT(monitor.time_left(begin), 0ms);
    static_cast<void>(monitor.take(ended(0, 0), begin));
    EXPECT_TRUE(monitor.wants_kill(begin + JobMonitor::kGrace));
    EXPECT_EQ(monitor.exit_code({0, SIGKILL}), 1);
  }
}

TEST(JobMonitor, AFarWatcherThatHasEndedIsHeardOfInTimeOrLost) {
  const auto begin = JobMonitor::Clock::now();
  JobMonitor monitor = on_two_hosts({}, begin);
  monitor.take_far_end(2, begin);
  monitor.take_far_end(3, begin + 1s);
  EXPECT_EQ(monitor.time_left(begin), 60s);
  static_cast<void>(monitor.take(ended(2, 0), begin + 59s));
  EXPECT_THAT(monitor.due_lines(begin + 60s), IsEmpty());
  EXPECT_EQ(monitor.time_left(begin + 60s), 1s);
  EXPECT_THAT(monitor.due_lines(begin + 61s),
              ElementsAre(HasSubstr("host b is lost, with rank 3: a watcher there has ended")));
  EXPECT_TRUE(monitor.wants_kill(begin + 64s));
}

}  // namespace
}  // namespace bluefog::bfrun
