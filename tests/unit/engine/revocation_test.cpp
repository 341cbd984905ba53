// Calls that end for good, because the ranks go on without one that is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/engine/scripted_engine.hpp"

namespace bluefog::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EngineRevocation : public ScriptedEngine {
 protected:
  void SetUp() override { connect({}, /*losses_revoke=*/true); }

  RankLostError lost_in(const Work& work) {
    EXPECT_TRUE(comes_true([&] { return work.done(); }));
    try {
      work.wait();
    } catch (const RankLostError& error) {
      return error;
    }
    ADD_FAILURE() << "expected a RankLostError";
    return {-1, ""};
  }
};

TEST_F(EngineRevocation, TheEndOfAProcessEndsAllCallsAndIsReportedToAll) {
  const Work needs_it = submit({.sources = {1}});
  const Work needs_another = submit({.sources = {2}});
  script([](ScriptedTransport& t) { t.die(1, "its process ended"); });
  EXPECT_EQ(std::string(lost_in(needs_another).what()),
            "rank 0, call 2, neighbor_allgather(uint8[4]): rank 1 is lost: its process ended; "
            "shrink() goes on with the ranks that are left");
  EXPECT_EQ(lost_in(needs_it).rank(), 1);
  EXPECT_THAT(sent_reports(), ElementsAre("rank 1, call 1: rank 1 is lost: its process ended",
                                          "rank 2, call 1: rank 1 is lost: its process ended"));
  for (const auto& [rank, report] : outbox_->reports) {
    EXPECT_EQ(report.kind, ControlMessage::Kind::Revocation) << rank;
  }
  EXPECT_THAT(error_of<RankLostError>([&] { run({.sources = {2}}); }), HasSubstr("rank 1 is lost"));
  EXPECT_THROW(engine_->check_revoked("step"), RankLostError);
  EXPECT_THROW((void)engine_->begin_resync(), RankLostError);
}

TEST_F(EngineRevocation, APeersReportEndsCallsAndIsNotPassedOn) {
  const Work work = submit({.sources = {1}});
  script([](ScriptedTransport& t) {
    t.send_report(2, report(ControlMessage::Kind::Revocation, 1, "rank 1 is lost: said so"));
    t.send_report(1, report(ControlMessage::Kind::Revocation, 2, "another reason"));
  });
  const RankLostError error = lost_in(work);
  EXPECT_EQ(error.rank(), 1);  // the first one counts
  EXPECT_THAT(error.what(), HasSubstr("rank 1 is lost: said so"));
  engine_->revoke("rank 0 has called shrink()");
  EXPECT_THAT(sent_reports(), IsEmpty());
}

TEST_F(EngineRevocation, ARankThatDoesNotComeInTimeIsAsGoodAsLost) {
  connect({.spins = 0, .yields = 0, .timeout = milliseconds(50)}, true);
  const std::string text = error_of<RankLostError>([&] { run({.sources = {2}}); });
  EXPECT_THAT(text, HasSubstr("rank 2 does not come: "));
  EXPECT_THAT(text, HasSubstr("nothing moved for 0.1 s"));
}

TEST_F(EngineRevocation, ACallersOwnDeadlineIsNoLoss) {
  ScriptedCall call({.sources = {2}});
  EXPECT_THROW(engine_->run(call, milliseconds(50)), TimeoutError);
  engine_->check_revoked("step");  // nothing is
}

TEST_F(EngineRevocation, WhoWantsItNamesWhoIsGone) {
  engine_->revoke("rank 0 has called shrink()");
  EXPECT_THAT(sent_reports(), ElementsAre("rank 1, call 0: rank 0 has called shrink()",
                                          "rank 2, call 0: rank 0 has called shrink()"));
  connect({}, true);
  script([](ScriptedTransport& t) { t.die(2, "it left"); });
  engine_->revoke("rank 0 has called shrink()");
  EXPECT_THAT(error_of<RankLostError>([&] { run({.sources = {1}}); }),
              HasSubstr("rank 2 is gone: it left"));
}

TEST_F(EngineRevocation, WithoutItTheEndOfAProcessConcernsThoseThatNeedIt) {
  connect({}, false);
  const Work needs_another = submit({.sources = {2}});
  script([](ScriptedTransport& t) { t.die(1, "its process ended"); });
  engine_->check_revoked("step");
  script([](ScriptedTransport& t) { send(t, 2, 1); });
  needs_another.wait();
}

}  // namespace
}  // namespace bluefog::testing
