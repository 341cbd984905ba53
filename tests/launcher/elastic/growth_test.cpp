// A monitor of a job whose ranks come and go.
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
using ::testing::SizeIs;

/// Two ranks at first, four at most, of which one suffices.
class GrowingJob : public ::testing::Test {
 protected:
  explicit GrowingJob(bool has_discovery = true, int respawns = 0)
      : monitor_(make(has_discovery, respawns)) {
    for (int rank = 0; rank < 2; ++rank) {
      static_cast<void>(monitor_.take(started(rank), begin_));
    }
  }
  static MonitoredJob make(bool has_discovery, int respawns) {
    Slots slots(4);
    slots.set_hosts({{"localhost", 2}});
    static_cast<void>(slots.fill());
    return {
        .ranks = 2,
        .enough = 1,
        .respawns = respawns,
        .starter = "bfrun",
        .growth = Growth(slots, has_discovery ? Growth::By::Discovery : Growth::By::Signals, 1)};
  }

  void join(int rank) {
    RankReport report = started(rank);
    report.kind = RankReport::Kind::Joining;
    static_cast<void>(monitor_.take(report, begin_));
  }
  void join_all() {
    join(0);
    join(1);
  }
  RanksDue with_slots(int count) {
    monitor_.growth()->set_hosts({{"localhost", count}});
    return monitor_.take_due(begin_);
  }
  /// Starts the ranks beyond the first two, which join.
  void grow_to(int count) {
    for (const auto& added : with_slots(count).add) {
      static_cast<void>(monitor_.take(started(added.rank), begin_));
      join(added.rank);
    }
  }
  /// Takes the end of a rank that was told to leave; the line on it.
  std::string leave(const RankReport& end) {
    static_cast<void>(monitor_.take(end, begin_));
    std::vector<std::string> lines;
    EXPECT_TRUE(monitor_.take_left(end.rank, lines));
    return lines.empty() ? "" : lines.front();
  }

  JobMonitor::Clock::time_point begin_ = JobMonitor::Clock::now();
  JobMonitor monitor_;
};

class JobThatGrowsBySignals : public GrowingJob {
 protected:
  JobThatGrowsBySignals() : GrowingJob(false) {}
};
class GrowingJobWithRestarts : public GrowingJob {
 protected:
  GrowingJobWithRestarts() : GrowingJob(true, 3) {}
};

TEST_F(GrowingJob, WaitsForAGroupThatCanBeJoined) {
  join(0);
  EXPECT_THAT(with_slots(3).add, IsEmpty());
  join(1);
  const RanksDue due = monitor_.take_due(begin_);
  EXPECT_THAT(due.add, ElementsAre(Slots::NewRank{2, {"localhost", 2}}));
  EXPECT_THAT(due.lines, ElementsAre("rank 2 is started, to join the others: this machine has 3 "
                                     "slots now (--host-discovery)"));
  EXPECT_THAT(monitor_.take_due(begin_).add, IsEmpty());
}

TEST_F(GrowingJob, HasAtMostMaxNpRanks) {
  join_all();
  EXPECT_THAT(with_slots(9).add, SizeIs(2));
}

TEST_F(GrowingJob, ANewRankThatEndsBeforeItHasJoinedHasFailed) {
  join_all();
  for (const auto& added : with_slots(3).add) {
    static_cast<void>(monitor_.take(started(added.rank), begin_));
  }
  EXPECT_THAT(monitor_.take(ended(2, 0), begin_), SizeIs(1));
  EXPECT_TRUE(monitor_.is_absent(2));
  EXPECT_THAT(with_slots(4).add, SizeIs(1));  // nobody has come to the end
  for (const int rank : {0, 1}) {
    static_cast<void>(monitor_.take(ended(rank, 0), begin_));
  }
  EXPECT_THAT(monitor_.closing_lines(ExitStatus{}),
              ::testing::Contains(::testing::HasSubstr("2 of 4 ranks have ended well")));
}

TEST_F(GrowingJob, AddsNobodyOnceARankHasEndedWellOrASignalHasCome) {
  join_all();
  static_cast<void>(monitor_.take(ended(0, 0), begin_));
  EXPECT_THAT(with_slots(3).add, IsEmpty());
  JobMonitor other(make(true, 0));
  other.growth()->set_hosts({{"localhost", 1}});
  other.take_signal(SIGTERM, begin_);
  EXPECT_THAT(other.take_due(begin_).leave, IsEmpty());
}

TEST_F(GrowingJob, KeepsAsManyAsAreNeededUntilOthersHaveJoined) {
  join_all();
  monitor_.growth()->set_hosts({{"elsewhere", 2}});
  const RanksDue due = monitor_.take_due(begin_);
  EXPECT_THAT(due.leave, ElementsAre(0));
  EXPECT_THAT(due.add, SizeIs(2));
  EXPECT_THAT(due.lines, ::testing::Contains(
                             "rank 1 stays until others have joined (--min-np 1): this machine "
                             "has 0 slots now (--host-discovery)"));
  EXPECT_THAT(monitor_.take_due(begin_).lines, IsEmpty());
  static_cast<void>(monitor_.take(started(2), begin_));
  EXPECT_THAT(monitor_.take_due(begin_).leave, IsEmpty());
  join(2);
  EXPECT_THAT(monitor_.take_due(begin_).leave, ElementsAre(1));
}

TEST_F(GrowingJob, HasFailedWhereAllHaveLeft) {
  monitor_.growth()->set_hosts({{"elsewhere", 2}});
  EXPECT_THAT(monitor_.take_due(begin_).leave, ElementsAre(0, 1));  // nobody has joined yet
  EXPECT_EQ(leave(ended(0, 0)), "rank 0 has left");
  EXPECT_EQ(leave(ended(1, 0)), "rank 1 has left");
  EXPECT_THAT(monitor_.closing_lines(ExitStatus{}),
              ElementsAre("all ranks have left, as they were told, and none has ended well"));
  EXPECT_EQ(monitor_.exit_code(ExitStatus{}), 1);
}

TEST_F(GrowingJob, TellsRanksToLeaveAndKillsThoseThatDoNot) {
  join_all();
  grow_to(4);
  const RanksDue due = with_slots(2);
  EXPECT_THAT(due.leave, ElementsAre(2, 3));
  EXPECT_EQ(due.lines.front(),
            "rank 2 is told to leave (SIGTERM): this machine has 2 slots now (--host-discovery)");
  EXPECT_EQ(leave(ended(2, 0)), "rank 2 has left");
  EXPECT_EQ(monitor_.time_left(begin_), Growth::kLeaveGrace);
  EXPECT_THAT(monitor_.take_due(begin_ + Growth::kLeaveGrace - 1ms).kill, IsEmpty());
  EXPECT_THAT(monitor_.take_due(begin_ + Growth::kLeaveGrace).kill, ElementsAre(3));
  EXPECT_THAT(monitor_.take_due(begin_ + Growth::kLeaveGrace).kill, IsEmpty());
  RankReport killed = ended(3, 0, SIGKILL);
  killed.told_to_end = true;
  EXPECT_THAT(leave(killed), HasSubstr("killed by signal 9 (SIGKILL), told to leave"));
  // The job is that of the first two again, and may grow once more.
  grow_to(3);
  for (const int rank : {0, 1, 2}) {
    static_cast<void>(monitor_.take(ended(rank, 0), begin_));
  }
  EXPECT_THAT(monitor_.closing_lines(ExitStatus{}), IsEmpty());
  EXPECT_EQ(monitor_.exit_code(ExitStatus{}), 0);
}

TEST_F(GrowingJob, OneThatLeavesHasNotComeToTheEnd) {
  join_all();
  grow_to(3);
  static_cast<void>(with_slots(2));
  static_cast<void>(leave(ended(2, 0)));
  EXPECT_THAT(with_slots(3).add, SizeIs(1));
}

TEST_F(GrowingJob, ALostRankSpoilsItsSlot) {
  join_all();
  grow_to(3);
  static_cast<void>(monitor_.take(ended(2, 3), begin_));
  EXPECT_FALSE(monitor_.decide_restart(2, begin_).is_granted);
  monitor_.growth()->take_over(2, true);
  EXPECT_THAT(monitor_.take_due(begin_).add, IsEmpty());
  EXPECT_THAT(with_slots(4).add, ElementsAre(Slots::NewRank{3, {"localhost", 3}}));
}

TEST_F(GrowingJob, OneThatHasEndedIsNotToldToLeave) {
  join_all();
  static_cast<void>(monitor_.take(ended(1, 0), begin_));
  monitor_.growth()->take_over(1, false);
  const RanksDue due = with_slots(1);
  EXPECT_THAT(due.leave, IsEmpty());
  EXPECT_THAT(due.lines, IsEmpty());
}

TEST_F(GrowingJobWithRestarts, OneThatWaitsForItsRestartNeedNotBeToldToLeave) {
  join_all();
  grow_to(3);
  static_cast<void>(monitor_.take(ended(2, 3), begin_));
  EXPECT_TRUE(monitor_.decide_restart(2, begin_).is_granted);
  monitor_.growth()->set_hosts({{"localhost", 2}});
  // It is due at the same time, and is not started.
  const RanksDue due = monitor_.take_due(begin_);
  EXPECT_THAT(due.start, IsEmpty());
  EXPECT_EQ(due.left, 1);
  EXPECT_THAT(due.leave, IsEmpty());
  EXPECT_THAT(due.lines, ElementsAre("rank 2 is not started again after all: this machine has 2 "
                                     "slots now (--host-discovery)"));
}

TEST_F(JobThatGrowsBySignals, StaysBetweenMinNpAndMaxNp) {
  join_all();
  EXPECT_EQ(monitor_.growth()->take_wish(1), "");
  EXPECT_THAT(monitor_.take_due(begin_).lines,
              ElementsAre("rank 2 is started, to join the others: 3 ranks are wanted (signal)"));
  EXPECT_EQ(monitor_.growth()->take_wish(1), "");
  static_cast<void>(monitor_.take_due(begin_));
  EXPECT_EQ(monitor_.growth()->take_wish(1),
            "asked for one rank more: there are 4, which is --max-np");
  for (int rank = 3; rank > 0; --rank) {
    EXPECT_EQ(monitor_.growth()->take_wish(-1), "");
    EXPECT_THAT(monitor_.take_due(begin_).leave, ElementsAre(rank));
    static_cast<void>(leave(ended(rank, 0)));
  }
  EXPECT_EQ(monitor_.growth()->take_wish(-1),
            "asked for one rank fewer: there are 1, --min-np is 1");
}

TEST_F(GrowingJob, TakesNoWishesBesideADiscovery) {
  EXPECT_EQ(monitor_.growth()->take_wish(1),
            "asked for one rank more, but --host-discovery says how many there are");
  EXPECT_EQ(JobMonitor({.ranks = 2}).growth(), nullptr);
}

}  // namespace
}  // namespace bluefog::bfrun
