// Who is started again, when, and who is not.
#include "tools/bfrun/job/monitor/respawns.hpp"

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

class RespawnsTest : public ::testing::Test {
 protected:
  RespawnsTest() {
    for (int rank = 0; rank < 3; ++rank) {
      respawns_.take(started(rank), begin_);
    }
  }

  void join(int rank) {
    RankReport report = started(rank);
    report.kind = RankReport::Kind::Joining;
    respawns_.take(report, begin_);
  }
  void join_all() {
    for (int rank = 0; rank < 3; ++rank) {
      join(rank);
    }
  }
  Respawns::Decision fail(int rank, Respawns::Clock::duration at = 0ms) {
    respawns_.take(ended(rank, 3), begin_ + at);
    return respawns_.decide(rank, ended(rank, 3), begin_ + at);
  }
  RanksDue due(Respawns::Clock::duration at = 0ms) {
    withdrawn_.clear();
    RanksDue due;
    respawns_.take_due(due, begin_ + at, withdrawn_);
    return due;
  }

  Respawns::Clock::time_point begin_ = Respawns::Clock::now();
  Respawns respawns_{3, 3};
  std::vector<Respawns::Withdrawn> withdrawn_;
};

TEST_F(RespawnsTest, ARankOfAGroupIsStartedAgainAtOnceAndOnce) {
  join_all();
  EXPECT_EQ(respawns_.next(), std::nullopt);
  const auto decision = fail(1);
  EXPECT_TRUE(decision.is_granted);
  EXPECT_THAT(decision.lines,
              ElementsAre("rank 1 is started again: 2 of 3 restarts are left (--respawn)"));
  EXPECT_EQ(respawns_.next(), begin_);
  EXPECT_THAT(due().start, ElementsAre(1));
  EXPECT_THAT(due().start, IsEmpty());
  EXPECT_EQ(respawns_.next(), std::nullopt);
}

TEST_F(RespawnsTest, OneThatEndsBeforeItComesToTheStartIsStartedAnew) {
  join(0);
  const auto decision = fail(1);
  EXPECT_TRUE(decision.is_granted);
  EXPECT_THAT(decision.lines,
              ElementsAre("rank 1 is started again, since the others wait for it in init: 2 of 3 "
                          "restarts are left (--respawn)"));
  const RanksDue now = due();
  EXPECT_THAT(now.start_anew, ElementsAre(1));
  EXPECT_THAT(now.start, IsEmpty());
  respawns_.take(started(1), begin_);
  EXPECT_THAT(fail(1, 999ms).lines, ElementsAre(HasSubstr("again in 1 s, as it ended within 1 s")));
  EXPECT_THAT(due(1999ms).start_anew, ElementsAre(1));
  EXPECT_FALSE(respawns_.can_be_joined());
  join(1);
  join(2);
  EXPECT_TRUE(respawns_.can_be_joined());
  EXPECT_TRUE(fail(1, 5s).is_granted);
  EXPECT_THAT(due(5s).start, ElementsAre(1));
}

TEST_F(RespawnsTest, NobodyWaitsForAnybodyBeforeTheFirstHasCome) {
  EXPECT_TRUE(fail(1).is_granted);
  EXPECT_TRUE(fail(0).is_granted);
  EXPECT_THAT(due().start_anew, ElementsAre(0, 1));
  EXPECT_THAT(due().end, IsEmpty());
}

TEST_F(RespawnsTest, OneThatHasBegunToJoinIsNotReplacedInTheStart) {
  join(0);
  join(1);
  const auto decision = fail(1);
  EXPECT_FALSE(decision.is_granted);
  EXPECT_THAT(
      decision.lines,
      ElementsAre("rank 1 is not started again: it ended in init (Context::create), to which "
                  "2 of 3 ranks have come: nobody can take its place there"));
  join(2);
  EXPECT_TRUE(fail(2).is_granted);
}

TEST_F(RespawnsTest, OneThatEndsSoonAfterItsRestartWaits) {
  join_all();
  static_cast<void>(fail(1));
  static_cast<void>(due());
  respawns_.take(started(1), begin_);
  EXPECT_THAT(fail(1, 999ms).lines, ElementsAre(HasSubstr("again in 1 s, as it ended within 1 s")));
  EXPECT_EQ(respawns_.next(), begin_ + 1999ms);
  EXPECT_THAT(due(1998ms).start, IsEmpty());
  EXPECT_THAT(due(1999ms).start, ElementsAre(1));
  respawns_.take(started(1), begin_ + 2s);
  EXPECT_TRUE(fail(1, 3s).is_granted);
  EXPECT_EQ(respawns_.next(), begin_ + 3s);
}

TEST_F(RespawnsTest, OneThatCouldNotBeStartedWaitsToo) {
  join_all();
  static_cast<void>(fail(1));
  static_cast<void>(due());
  EXPECT_TRUE(respawns_.decide(1, std::nullopt, begin_).is_granted);
  EXPECT_EQ(respawns_.next(), begin_ + 1s);
}

TEST_F(RespawnsTest, RestartsAreOfAllRanksTogether) {
  join_all();
  EXPECT_TRUE(fail(1).is_granted);
  EXPECT_TRUE(fail(2).is_granted);
  join(1);
  EXPECT_TRUE(fail(1).is_granted);
  join(1);
  const auto decision = fail(1);
  EXPECT_FALSE(decision.is_granted);
  EXPECT_THAT(decision.lines,
              ElementsAre("rank 1 is not started again: 0 of 3 restarts are left (--respawn)"));
}

// Training goes on without one that has left it in good order.
TEST_F(RespawnsTest, OthersAreAfterARankThatHasLeftEndsWell) {
  join_all();
  RankReport left = started(0);
  left.kind = RankReport::Kind::Departed;
  respawns_.take(left, begin_);
  respawns_.take(ended(0, 0), begin_);
  EXPECT_TRUE(respawns_.can_be_joined());
  EXPECT_TRUE(fail(2).is_granted);
  EXPECT_THAT(due().start, ElementsAre(2));
  respawns_.take(ended(1, 0), begin_);
  EXPECT_FALSE(respawns_.can_be_joined());
}

TEST_F(RespawnsTest, NobodyIsOnceARankHasEndedWell) {
  join_all();
  static_cast<void>(fail(1));
  respawns_.take(ended(0, 0), begin_);
  EXPECT_THAT(fail(2).lines,
              ElementsAre("rank 2 is not started again: rank 0 has ended well, and the others may "
                          "be about to"));
  EXPECT_THAT(due().given_up, ElementsAre(1));
  EXPECT_EQ(withdrawn_.front().rank, 1);
  EXPECT_EQ(withdrawn_.front().end, ended(1, 3));
}

TEST_F(RespawnsTest, NobodyJoinsAGroupThatIsGone) {
  join_all();
  EXPECT_TRUE(fail(0).is_granted);
  EXPECT_THAT(due().start, ElementsAre(0));
  EXPECT_TRUE(fail(1).is_granted);
  respawns_.take_gone(2);  // without a word
  const auto decision = respawns_.decide(2, std::nullopt, begin_);
  EXPECT_FALSE(decision.is_granted);
  EXPECT_THAT(decision.lines, ElementsAre(HasSubstr("no rank is left that rank 2 could join")));
  const RanksDue last = due();
  EXPECT_THAT(last.end, ElementsAre(0));
  EXPECT_THAT(last.given_up, ElementsAre(1));
  EXPECT_THAT(last.start, IsEmpty());
  EXPECT_THAT(due().end, IsEmpty());
}

TEST_F(RespawnsTest, OneThatHasJoinedAnewKeepsTheGroup) {
  join_all();
  static_cast<void>(fail(0));
  static_cast<void>(due());
  join(0);
  EXPECT_TRUE(fail(1).is_granted);
  EXPECT_TRUE(fail(2).is_granted);
  EXPECT_THAT(due().start, ElementsAre(1, 2));
}

TEST(Respawns, NothingIsSaidWhereNobodyAskedForThem) {
  Respawns none(2, 0);
  const auto decision = none.decide(1, ended(1, 3), Respawns::Clock::now());
  EXPECT_FALSE(decision.is_granted);
  EXPECT_THAT(decision.lines, IsEmpty());
}

}  // namespace
}  // namespace bluefog::bfrun
