// The ranks that a monitor names, and the exit code that it gives to their job.
#include "tools/bfrun/job/monitor/job_monitor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/launcher/rank_ends.hpp"

namespace bluefog::bfrun {
namespace {

using namespace std::chrono_literals;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ExitStatus kSuccess{0, 0};

TEST(Roster, NobodyMissesARankThatWasEndedAsItBegan) {
  Roster roster(3);
  roster.start(started(0));
  EXPECT_THAT(roster.unheard(), ElementsAre(1, 2));
  roster.dismiss(2);
  EXPECT_THAT(roster.unheard(), ElementsAre(1));
}

TEST(JobMonitor, NamesRanksThatFailedByThemselves) {
  JobMonitor monitor({.ranks = 3});
  for (int rank = 0; rank < 3; ++rank) {
    static_cast<void>(monitor.take(started(rank)));
  }
  EXPECT_THAT(monitor.take(ended(0, 0)), IsEmpty());
  EXPECT_THAT(monitor.take(ended(2, 0, SIGKILL)), IsEmpty());
  RankReport told = ended(1, 0, SIGTERM);
  told.told_to_end = true;
  EXPECT_THAT(monitor.take(told), IsEmpty());
  EXPECT_EQ(monitor.exit_code({137, 0}), 137);
  EXPECT_THAT(monitor.closing_lines({137, 0}),
              ElementsAre("rank 2 on host a (pid 102) was killed by signal 9 (SIGKILL)"));
}

TEST(JobMonitor, NamesTheRankThatDiedFirstFirst) {
  JobMonitor monitor({.ranks = 3});
  const auto begin = JobMonitor::Clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    static_cast<void>(monitor.take(started(rank), begin));
  }
  EXPECT_LT(monitor.time_left(begin), 0ms);
  // The followers are heard of first.
  static_cast<void>(monitor.take(ended(0, 1, 0, 7'000), begin));
  static_cast<void>(monitor.take(ended(1, 1, 0, 9'000), begin + 1ms));
  EXPECT_THAT(monitor.due_lines(begin + 2ms), IsEmpty());
  EXPECT_EQ(monitor.time_left(begin + 2ms), JobMonitor::kHold - 2ms);
  static_cast<void>(monitor.take(ended(2, 0, SIGSEGV, 5'000), begin + 3ms));
  EXPECT_THAT(monitor.due_lines(begin + JobMonitor::kHold),
              ElementsAre(HasSubstr("rank 2 on"), HasSubstr("rank 0 on"), HasSubstr("rank 1 on")));
  EXPECT_THAT(monitor.due_lines(begin + 1h), IsEmpty());
  EXPECT_EQ(monitor.exit_code({1, 0}), 128 + SIGSEGV);
  EXPECT_EQ(monitor.exit_code({77, 0}), 128 + SIGSEGV);
  EXPECT_EQ(monitor.exit_code({0, SIGKILL}), 137);
  EXPECT_TRUE(monitor.wants_kill(begin + 1h));
  EXPECT_LT(monitor.time_left(begin + 1h), 0ms);
}

// The peers of a killed rank may see its death before its parent does.
TEST(JobMonitor, NamesAKilledRankBeforeThoseThatEndSoonOfIt) {
  JobMonitor monitor({.ranks = 3});
  const auto begin = JobMonitor::Clock::now();
  for (int rank = 0; rank < 3; ++rank) {
    static_cast<void>(monitor.take(started(rank), begin));
  }
  static_cast<void>(monitor.take(ended(0, 1, 0, 5'000), begin));
  static_cast<void>(monitor.take(ended(1, 0, SIGKILL, 9'000), begin));
  static_cast<void>(monitor.take(ended(2, 0, SIGKILL, 400'000), begin));
  EXPECT_THAT(monitor.due_lines(begin + JobMonitor::kHold),
              ElementsAre(HasSubstr("rank 1 on"), HasSubstr("rank 0 on"), HasSubstr("rank 2 on")));
  EXPECT_EQ(monitor.exit_code({1, 0}), 137);
}

TEST(JobMonitor, SaysThatMpirunWasKilled) {
  JobMonitor monitor({.ranks = 1});
  static_cast<void>(monitor.take(started(0)));
  EXPECT_THAT(monitor.closing_lines({0, SIGSEGV}),
              ElementsAre("mpirun was killed by signal 11 (SIGSEGV)"));
}

// Open MPI's mpirun at times crashes when ranks end while others start.
TEST(JobMonitor, TheCrashOfAnMpirunIsNotThatOfItsRanks) {
  for (const int code : {0, 3}) {
    JobMonitor monitor({.ranks = 1});
    static_cast<void>(monitor.take(started(0)));
    static_cast<void>(monitor.take(ended(0, code)));
    EXPECT_EQ(monitor.exit_code({0, SIGSEGV}), code);
    EXPECT_EQ(monitor.exit_code({0, SIGKILL}), 137);
  }
  JobMonitor unsettled({.ranks = 1});
  static_cast<void>(unsettled.take(started(0)));
  EXPECT_EQ(unsettled.exit_code({0, SIGSEGV}), 139);
}

TEST(JobMonitor, ARankThatSaidThatItExitsIsNamedOnce) {
  JobMonitor monitor({.ranks = 2});
  const auto begin = JobMonitor::Clock::now();
  for (int rank = 0; rank < 2; ++rank) {
    static_cast<void>(monitor.take(started(rank), begin));
  }
  static_cast<void>(monitor.take(ended(1, 3, 0, 5'000), begin));
  static_cast<void>(monitor.take(ended(0, 0, SIGABRT, 7'000), begin));
  RankReport told = ended(1, 0, SIGTERM, 9'000);
  told.told_to_end = true;
  static_cast<void>(monitor.take(told, begin));
  EXPECT_THAT(monitor.due_lines(begin + JobMonitor::kHold),
              ElementsAre(HasSubstr("exited with code 3"), HasSubstr("rank 0 on")));
  EXPECT_EQ(monitor.exit_code({134, 0}), 3);
}

TEST(JobMonitor, NoJobThatLostARankEndsWithZero) {
  JobMonitor silent({.ranks = 2});
  for (int rank = 0; rank < 2; ++rank) {
    static_cast<void>(silent.take(started(rank)));
  }
  static_cast<void>(silent.take(ended(0, 0)));
  EXPECT_EQ(silent.exit_code(kSuccess), 1);
  EXPECT_THAT(silent.closing_lines(kSuccess),
              ElementsAre("rank 1 on host a (pid 101) ended without a word: the connection to its "
                          "host was lost, or mpirun's daemon or its watching bfrun there was "
                          "killed"));
  JobMonitor unheard({.ranks = 2});
  static_cast<void>(unheard.take(started(0)));
  static_cast<void>(unheard.take(ended(0, 0)));
  EXPECT_EQ(unheard.exit_code(kSuccess), 1);
  EXPECT_THAT(unheard.closing_lines(kSuccess), ElementsAre("rank 1 was never heard of"));
  JobMonitor told({.ranks = 1});
  static_cast<void>(told.take(started(0)));
  RankReport end = ended(0, 0, SIGTERM);
  end.told_to_end = true;
  static_cast<void>(told.take(end));
  EXPECT_EQ(told.exit_code(kSuccess), 143);
  EXPECT_THAT(told.closing_lines(kSuccess),
              ElementsAre("rank 0 on host a (pid 100) was killed by signal 15 (SIGTERM), told to "
                          "end"));
}

TEST(JobMonitor, LostRanksAreNamedUpToANumber) {
  JobMonitor monitor({.ranks = 20});
  for (int rank = 0; rank < 20; ++rank) {
    static_cast<void>(monitor.take(started(rank)));
  }
  const auto lines = monitor.closing_lines(kSuccess);
  EXPECT_EQ(lines.size(), 17U);
  EXPECT_EQ(lines.back(), "4 more ranks were lost");
}

TEST(JobMonitor, AWatcherThatIsGoneEndsNoHealthyJob) {
  JobMonitor monitor({.ranks = 1});
  RankReport here = started(0);
  here.came_by_line = true;
  static_cast<void>(monitor.take(here));
  monitor.take_watcher_end(0);
  EXPECT_EQ(monitor.exit_code(kSuccess), 1);
  EXPECT_THAT(monitor.closing_lines(kSuccess), ElementsAre(HasSubstr("watching bfrun was killed")));
}

// Rank 0 dies of what rank 1 does, while rank 1's interpreter still ends.
TEST(JobMonitor, ARankThatLeftBeforeOthersFailedIsNamedFirst) {
  JobMonitor monitor({.ranks = 2});
  const auto begin = JobMonitor::Clock::now();
  for (int rank = 0; rank < 2; ++rank) {
    static_cast<void>(monitor.take(started(rank), begin));
  }
  RankReport leaving = started(1);
  leaving.kind = RankReport::Kind::Leaving;
  leaving.ended_at_us = 5'000;
  static_cast<void>(monitor.take(leaving, begin));
  EXPECT_FALSE(monitor.awaits_earlier_end());  // nobody has failed
  static_cast<void>(monitor.take(ended(0, 1, 0, 7'000), begin));
  EXPECT_THAT(monitor.due_lines(begin + JobMonitor::kHold), IsEmpty());
  EXPECT_TRUE(monitor.awaits_earlier_end());
  static_cast<void>(monitor.take(ended(1, 3, 0, 900'000), begin + 900ms));
  EXPECT_FALSE(monitor.awaits_earlier_end());
  EXPECT_THAT(monitor.due_lines(begin + 900ms),
              ElementsAre(HasSubstr("rank 1 on"), HasSubstr("rank 0 on")));
  EXPECT_EQ(monitor.exit_code({1, 0}), 3);
}

// One that has left long before, and in peace, is no cause.
TEST(JobMonitor, ARankThatLeftLongBeforeKeepsItsPlace) {
  JobMonitor monitor({.ranks = 2});
  RankReport leaving = started(1);
  leaving.kind = RankReport::Kind::Leaving;
  leaving.ended_at_us = 5'000;
  static_cast<void>(monitor.take(leaving));
  static_cast<void>(monitor.take(ended(0, 1, 0, 7'000)));
  static_cast<void>(monitor.take(ended(1, 3, 0, 60'000'000)));
  EXPECT_EQ(monitor.exit_code({1, 0}), 1);
}

TEST(JobMonitor, FlagsThatMpirunRefusesAreNamed) {
  JobMonitor monitor({.ranks = 1, .extra_mpi_flags = "--nonsense"});
  EXPECT_EQ(monitor.exit_code({213, 0}), 2);
  EXPECT_THAT(monitor.closing_lines({213, 0}),
              ElementsAre("mpirun ended with code 213 before any rank was heard of; expected flags "
                          "that it knows, found --extra-mpi-flags '--nonsense'"));
  JobMonitor plain({.ranks = 1});
  EXPECT_EQ(plain.exit_code({213, 0}), 213);
  EXPECT_THAT(plain.closing_lines({213, 0}),
              ElementsAre("mpirun ended with code 213 before any rank was heard of"));
  EXPECT_THAT(plain.closing_lines(kSuccess), IsEmpty());
  static_cast<void>(monitor.take(started(0)));
  EXPECT_EQ(monitor.exit_code({213, 0}), 213);
}

TEST(JobMonitor, CountsWhenManyFail) {
  JobMonitor monitor({.ranks = 20});
  const auto begin = JobMonitor::Clock::now();
  for (int rank = 0; rank < 20; ++rank) {
    static_cast<void>(monitor.take(started(rank)));
    static_cast<void>(monitor.take(ended(rank, 1), begin));
  }
  EXPECT_EQ(monitor.due_lines(begin + JobMonitor::kHold).size(), 16U);
  EXPECT_THAT(monitor.closing_lines({1, 0}), ElementsAre("4 more ranks failed"));
}

TEST(JobMonitor, ExitCodeIsThatOfMpirun) {
  const JobMonitor monitor({.ranks = 1});
  EXPECT_EQ(monitor.exit_code({0, 0}), 0);
  EXPECT_EQ(monitor.exit_code({3, 0}), 3);
  EXPECT_EQ(monitor.exit_code({0, SIGKILL}), 137);
}

TEST(JobMonitor, FaultTolerantJobsFailWithTheFirstRankThatDid) {
  JobMonitor monitor({.ranks = 3, .fault_tolerant = true});
  for (int rank = 0; rank < 3; ++rank) {
    static_cast<void>(monitor.take(started(rank)));
  }
  static_cast<void>(monitor.take(ended(1, 0, SIGSEGV)));
  static_cast<void>(monitor.take(ended(0, 5)));
  static_cast<void>(monitor.take(ended(2, 0)));
  EXPECT_EQ(monitor.exit_code({0, 0}), 128 + SIGSEGV);
  EXPECT_THAT(monitor.closing_lines(kSuccess),
              ElementsAre(HasSubstr("rank 1 on"), HasSubstr("rank 0 on")));
}

TEST(JobMonitor, AJobThatIsLeftWithEnoughRanksSucceeds) {
  for (const int enough : {2, 3}) {
    JobMonitor monitor({.ranks = 3, .enough = enough});
    for (int rank = 0; rank < 3; ++rank) {
      static_cast<void>(monitor.take(started(rank)));
    }
    static_cast<void>(monitor.take(ended(1, 0, SIGSEGV)));
    static_cast<void>(monitor.take(ended(0, 0)));
    static_cast<void>(monitor.take(ended(2, 0)));
    EXPECT_EQ(monitor.exit_code({0, 0}), enough == 2 ? 0 : 128 + SIGSEGV);
    if (enough == 2) {
      EXPECT_THAT(monitor.closing_lines(kSuccess),
                  ElementsAre(HasSubstr("rank 1 on"),
                              "2 of 3 ranks have ended well, 2 suffice (--min-np)"));
    }
    monitor.take_signal(SIGTERM);
    EXPECT_NE(monitor.exit_code({128 + SIGTERM, 0}), 0);
  }
}

TEST(JobMonitor, ARankThatNeverSaidHowItEndedIsAFailure) {
  JobMonitor monitor({.ranks = 2, .fault_tolerant = true});
  for (int rank = 0; rank < 2; ++rank) {
    static_cast<void>(monitor.take(started(rank)));
  }
  static_cast<void>(monitor.take(ended(0, 0)));
  EXPECT_EQ(monitor.exit_code({0, 0}), 1);
  EXPECT_THAT(monitor.closing_lines(kSuccess),
              ElementsAre(HasSubstr("rank 1 on host a (pid 101)")));
}

TEST(JobMonitor, RanksThatMpirunEndedAreSaidToHaveBeen) {
  JobMonitor monitor({.ranks = 3, .fault_tolerant = true});
  for (int rank = 0; rank < 3; ++rank) {
    static_cast<void>(monitor.take(started(rank)));
  }
  static_cast<void>(monitor.take(ended(0, 0, SIGKILL)));
  static_cast<void>(monitor.take(ended(1, 1)));
  EXPECT_THAT(monitor.closing_lines(kSuccess),
              ElementsAre(HasSubstr("rank 0 on"), HasSubstr("rank 1 on"),
                          HasSubstr("because another rank exited with an error")));
}

TEST(JobMonitor, AJobToldToEndEndsBySignal) {
  JobMonitor monitor({.ranks = 1});
  monitor.take_signal(SIGUSR1);
  EXPECT_EQ(monitor.exit_code({1, 0}), 1);
  monitor.take_signal(SIGTERM);
  EXPECT_EQ(monitor.exit_code({1, 0}), 143);
  EXPECT_EQ(monitor.exit_code({0, 0}), 143);
}

TEST(JobMonitor, AFailureBeforeTheSignalCounts) {
  JobMonitor monitor({.ranks = 1});
  static_cast<void>(monitor.take(ended(0, 3)));
  monitor.take_signal(SIGTERM);
  EXPECT_EQ(monitor.exit_code({3, 0}), 3);
}

TEST(JobMonitor, AnnouncesPlacementOnceAllHaveStarted) {
  JobMonitor same({.ranks = 2, .has_other_hosts = true});
  EXPECT_THAT(same.take(started(1, "b")), IsEmpty());
  EXPECT_THAT(same.take(started(0, "a")),
              ElementsAre("2 ranks on 2 hosts, 1 core each (bound), 1 thread per rank"));
  JobMonitor differing({.ranks = 2, .has_other_hosts = true});
  RankReport other = started(1, "b");
  other.placement = {8, 0, 8};
  static_cast<void>(differing.take(other));
  EXPECT_THAT(differing.take(started(0, "a")),
              ElementsAre("host a: 1 rank on 1 host, 1 core each (bound), 1 thread per rank",
                          "host b: 1 rank on 1 host, not bound (8 cores), 8 threads per rank"));
}

}  // namespace
}  // namespace bluefog::bfrun
