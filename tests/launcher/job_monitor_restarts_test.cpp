// A monitor of a job in which ranks are started again: what it says, and how the job ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "tests/launcher/rank_ends.hpp"
#include "tools/bfrun/job/monitor/job_monitor.hpp"

namespace bluefog::bfrun {
namespace {

using namespace std::chrono_literals;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Three ranks that have joined each other, of which `enough` suffice.
class JobMonitorRestarts : public ::testing::Test {
 protected:
  JobMonitor job(int enough, int respawns = 2) {
    JobMonitor monitor({.ranks = 3, .enough = enough, .respawns = respawns, .starter = "bfrun"});
    for (int rank = 0; rank < 3; ++rank) {
      RankReport report = started(rank);
      static_cast<void>(monitor.take(report, begin_));
      report.kind = RankReport::Kind::Joining;
      static_cast<void>(monitor.take(report, begin_));
    }
    return monitor;
  }
  /// Takes the end of a rank, and returns whether it is started again.
  bool fail(JobMonitor& monitor, const RankReport& end) {
    static_cast<void>(monitor.take(end, begin_));
    return monitor.decide_restart(end.rank, begin_).is_granted;
  }
  void start_again(JobMonitor& monitor, int rank) {
    EXPECT_EQ(monitor.time_left(begin_), 0ms);
    EXPECT_THAT(monitor.take_due(begin_).start, ElementsAre(rank));
    static_cast<void>(monitor.take(started(rank), begin_));
  }
  void join(JobMonitor& monitor, int rank) {
    RankReport report = started(rank);
    report.kind = RankReport::Kind::Joining;
    static_cast<void>(monitor.take(report, begin_));
  }

  JobMonitor::Clock::time_point begin_ = JobMonitor::Clock::now();
};

TEST_F(JobMonitorRestarts, ARankIsNamedAndThenSaidToBeStartedAgain) {
  JobMonitor monitor = job(2);
  EXPECT_TRUE(fail(monitor, ended(1, 0, SIGKILL)));
  start_again(monitor, 1);
  EXPECT_THAT(monitor.due_lines(begin_ + JobMonitor::kHold - 1ms), IsEmpty());
  EXPECT_THAT(monitor.due_lines(begin_ + JobMonitor::kHold),
              ElementsAre(HasSubstr("rank 1 on host a (pid 101) was killed by signal 9"),
                          HasSubstr("rank 1 is started again: 1 of 2")));
  join(monitor, 1);
  for (int rank = 0; rank < 3; ++rank) {
    static_cast<void>(monitor.take(ended(rank, 0), begin_));
  }
  EXPECT_THAT(monitor.closing_lines(ExitStatus{}), IsEmpty());
  EXPECT_EQ(monitor.exit_code(ExitStatus{}), 0);
}

TEST_F(JobMonitorRestarts, AnEndWithoutAWordOrByAnOrderIsNamedAtOnce) {
  JobMonitor monitor = job(2);
  monitor.take_watcher_end(1, begin_);
  EXPECT_THAT(monitor.decide_restart(1, begin_).lines,
              ElementsAre("rank 1 on host a (pid 101) ended without a word: its watching bfrun was "
                          "killed",
                          HasSubstr("rank 1 is started again")));
  RankReport told = ended(2, 0, SIGTERM);
  told.told_to_end = true;
  static_cast<void>(monitor.take(told, begin_));
  EXPECT_THAT(monitor.decide_restart(2, begin_).lines,
              ElementsAre(HasSubstr("killed by signal 15 (SIGTERM), told to end"),
                          HasSubstr("rank 2 is started again")));
}

TEST_F(JobMonitorRestarts, ARankThatIsStartedAgainLives) {
  JobMonitor monitor = job(3);
  EXPECT_TRUE(fail(monitor, ended(1, 3)));
  EXPECT_FALSE(monitor.wants_kill(begin_ + 1h));
  start_again(monitor, 1);
  EXPECT_TRUE(fail(monitor, ended(1, 3)));
  EXPECT_FALSE(fail(monitor, ended(2, 5)));  // no restart is left
  EXPECT_TRUE(monitor.wants_kill(begin_ + JobMonitor::kFailureGrace));
  EXPECT_EQ(monitor.exit_code({5, 0}), 5);
}

// The process has done nothing of the others' work.
TEST_F(JobMonitorRestarts, OneThatEndsWithZeroBeforeItHasJoinedHasFailed) {
  for (const bool are_enough : {true, false}) {
    JobMonitor monitor = job(are_enough ? 2 : 3);
    EXPECT_TRUE(fail(monitor, ended(1, 0, SIGKILL)));
    start_again(monitor, 1);
    EXPECT_THAT(
        monitor.take(ended(1, 0), begin_),
        ElementsAre("rank 1 on host a (pid 101) exited with code 0 before it had joined the "
                    "others: it does not count as a rank that has ended well"));
    EXPECT_TRUE(monitor.is_absent(1));
    EXPECT_FALSE(monitor.is_absent(0));
    EXPECT_EQ(monitor.wants_kill(begin_ + JobMonitor::kFailureGrace), !are_enough);
    EXPECT_TRUE(fail(monitor, ended(2, 3)));  // nobody has come to the end
    start_again(monitor, 2);
    join(monitor, 2);
    static_cast<void>(monitor.take(ended(0, 0), begin_));
    static_cast<void>(monitor.take(ended(2, 0), begin_));
    const auto lines = monitor.closing_lines(ExitStatus{});
    EXPECT_EQ(std::ranges::count(lines, "2 of 3 ranks have ended well, 2 suffice (--min-np)"),
              are_enough ? 1 : 0);
    EXPECT_EQ(monitor.exit_code(ExitStatus{}), are_enough ? 0 : 137);
  }
}

TEST_F(JobMonitorRestarts, ManyRestartsAreAllNamed) {
  JobMonitor monitor = job(2, 20);
  for (int time = 0; time < 20; ++time) {
    static_cast<void>(monitor.take(ended(1, 3), begin_));
    EXPECT_TRUE(monitor.decide_restart(1, begin_).is_granted);
    EXPECT_THAT(monitor.due_lines(begin_ + JobMonitor::kHold), ::testing::SizeIs(2));
  }
  EXPECT_FALSE(fail(monitor, ended(1, 3)));
  EXPECT_THAT(monitor.closing_lines({3, 0}),
              ElementsAre(HasSubstr("rank 1 on"), HasSubstr("rank 1 is not started again")));
}

TEST_F(JobMonitorRestarts, NobodyIsStartedAgainAfterASignal) {
  JobMonitor monitor = job(2);
  EXPECT_TRUE(fail(monitor, ended(1, 3)));
  monitor.take_signal(SIGINT, begin_);
  EXPECT_THAT(monitor.take_due(begin_ + 1h).start, IsEmpty());
  EXPECT_FALSE(fail(monitor, ended(2, 3)));
  static_cast<void>(monitor.take(ended(0, 0, SIGTERM), begin_));
  static_cast<void>(monitor.closing_lines({143, 0}));
  EXPECT_EQ(monitor.exit_code({143, 0}), 130);
}

TEST_F(JobMonitorRestarts, AFailureCountsAfterAllWhereNobodyIsLeftToJoin) {
  JobMonitor monitor = job(1);
  EXPECT_TRUE(fail(monitor, ended(1, 3, 0, 5'000)));
  start_again(monitor, 1);
  EXPECT_TRUE(fail(monitor, ended(2, 4, 0, 6'000)));
  static_cast<void>(monitor.due_lines(begin_ + JobMonitor::kHold));
  EXPECT_FALSE(fail(monitor, ended(0, 6, 0, 7'000)));
  const RanksDue due = monitor.take_due(begin_);
  EXPECT_THAT(due.end, ElementsAre(1));
  EXPECT_THAT(due.given_up, ElementsAre(2));
  EXPECT_THAT(due.lines, ElementsAre("rank 1 is ended: no rank is left that it could join",
                                     HasSubstr("rank 2 is not started again after all")));
  EXPECT_THAT(monitor.closing_lines({143, 0}),
              ElementsAre(HasSubstr("rank 0 on"), HasSubstr("rank 0 is not started again")));
  EXPECT_EQ(monitor.exit_code({143, 0}), 3);
}

TEST_F(JobMonitorRestarts, OneThatWaitsIsGivenUpWhenARankHasEndedWell) {
  JobMonitor monitor = job(2);
  EXPECT_TRUE(fail(monitor, ended(1, 3)));
  static_cast<void>(monitor.take(ended(0, 0), begin_));
  EXPECT_THAT(monitor.take_due(begin_).given_up, ElementsAre(1));
  static_cast<void>(monitor.take(ended(2, 0), begin_));
  EXPECT_THAT(
      monitor.closing_lines(ExitStatus{}),
      ElementsAre(HasSubstr("rank 1 on"), HasSubstr("rank 1 is started again"),
                  HasSubstr("rank 1 is not started again after all"), HasSubstr("2 of 3 ranks")));
  EXPECT_EQ(monitor.exit_code(ExitStatus{}), 0);
}

}  // namespace
}  // namespace bluefog::bfrun
