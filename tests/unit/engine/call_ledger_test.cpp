#include "bluefog_cpp/engine/call_ledger.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/engine/scripted_call.hpp"
#include "tests/unit/engine/scripted_transport.hpp"

namespace bluefog::testing {
namespace {

class CallLedgerTest : public ::testing::Test {
 protected:
  static constexpr auto kRefusal = ControlMessage::Kind::Refusal;
  static constexpr auto kAbandoned = ControlMessage::Kind::Abandoned;

  /// The ledger of rank 0 of 3.
  CallLedgerTest() : peers_(0, 3, {}, {nullptr, &transport_, &transport_}) {}

  /// A call that has been made and has not ended.
  void begin_call(ScriptedCall& call) {
    CallState::of(call).index = ledger_.take_number(call.partner());
    queue_.add(call, nullptr);
  }
  void end_call(ScriptedCall& call) {
    CallState::of(call).phase = CallState::Phase::Complete;
    queue_.remove_finished();
  }

  ScriptedTransport transport_;
  Peers peers_;
  CallQueue queue_;
  CallLedger ledger_{peers_, queue_};
};

TEST_F(CallLedgerTest, NumbersOfAllRanksAndOfEachPairAreCountedApart) {
  EXPECT_EQ(ledger_.take_number(-1), 1U);
  EXPECT_EQ(ledger_.take_number(1), kFirstPairCall + 1);
  EXPECT_EQ(ledger_.take_number(2), kFirstPairCall + 1);
  EXPECT_EQ(ledger_.take_number(1), kFirstPairCall + 2);
  EXPECT_EQ(ledger_.take_number(-1), 2U);
  EXPECT_EQ(ledger_.next_call(), 3U);
}

TEST_F(CallLedgerTest, ACallIsOverOnceItWasMadeAndHasEnded) {
  ScriptedCall call({});
  ScriptedCall pair_call({.partner = 2});
  const CallKey key{.call = 1};
  const CallKey pair_key{.call = kFirstPairCall + 1, .partner = 2};
  EXPECT_FALSE(ledger_.is_over(key));
  EXPECT_FALSE(ledger_.is_over(pair_key));
  begin_call(call);
  begin_call(pair_call);
  EXPECT_TRUE(ledger_.is_under_way(1, 1));
  EXPECT_TRUE(ledger_.is_under_way(2, kFirstPairCall + 1));
  EXPECT_FALSE(ledger_.is_under_way(1, kFirstPairCall + 1)) << "the pair with rank 2 makes it";
  EXPECT_FALSE(ledger_.is_over(key));
  end_call(call);
  end_call(pair_call);
  EXPECT_FALSE(ledger_.is_under_way(1, 1));
  EXPECT_TRUE(ledger_.is_over(key));
  EXPECT_TRUE(ledger_.is_over(pair_key));
  EXPECT_FALSE(ledger_.is_over({.call = kFirstPairCall + 1, .partner = 1}));
}

TEST_F(CallLedgerTest, RefusalsAreKeptUntilTheirCallsAreOver) {
  ScriptedCall call({});
  ledger_.note_refusal(1, {.kind = kRefusal, .call = 1, .text = "one"});
  ledger_.note_refusal(1, {.kind = kRefusal, .call = 2, .text = "two"});
  EXPECT_EQ(*ledger_.refusal(1, 1), "one");
  EXPECT_EQ(*ledger_.refusal(1, 2), "two");
  EXPECT_EQ(ledger_.refusal(2, 1), nullptr);
  EXPECT_EQ(ledger_.abandonment(1, 1), nullptr);
  begin_call(call);
  end_call(call);
  ledger_.note_refusal(1, {.kind = kRefusal, .call = 3, .text = "three"});
  EXPECT_EQ(ledger_.refusal(1, 1), nullptr);
  EXPECT_EQ(*ledger_.refusal(1, 2), "two");
  ledger_.note_refusal(2, {.kind = kRefusal, .call = 1, .text = "too late"});
  EXPECT_EQ(ledger_.refusal(2, 1), nullptr);
}

TEST_F(CallLedgerTest, GivingUpIsKnownWhileItsCallIsNotOver) {
  ScriptedCall call({});
  EXPECT_FALSE(ledger_.knows_of_abandonment());
  ledger_.note_refusal(2, {.kind = kAbandoned, .call = 1, .text = "interrupted"});
  EXPECT_TRUE(ledger_.knows_of_abandonment());
  EXPECT_EQ(*ledger_.abandonment(2, 1), "interrupted");
  EXPECT_EQ(*ledger_.refusal(2, 1), "interrupted");
  begin_call(call);
  end_call(call);
  ledger_.note_refusal(2, {.kind = kRefusal, .call = 2, .text = "two"});
  EXPECT_FALSE(ledger_.knows_of_abandonment());
  EXPECT_TRUE(ledger_.has_abandoned()) << "a rank may be missing from now on";
}

TEST_F(CallLedgerTest, ALateMismatchIsTakenOncePerCall) {
  EXPECT_FALSE(ledger_.has_late_mismatch());
  ledger_.note_late_mismatch({.call = 1}, "first");
  ledger_.note_late_mismatch({.call = 1}, "again");
  ledger_.count_larger_calls(1);
  EXPECT_FALSE(ledger_.has_late_mismatch());
  ledger_.count_larger_calls(-1);
  EXPECT_TRUE(ledger_.has_late_mismatch());
  EXPECT_EQ(ledger_.take_late_mismatch(), "first");
  ledger_.note_late_mismatch({.call = 1}, "once more");
  EXPECT_FALSE(ledger_.has_late_mismatch());
  ledger_.note_late_mismatch({.call = 2}, "second");
  ledger_.forget_late_mismatch({.call = 1});
  EXPECT_TRUE(ledger_.has_late_mismatch());
  ledger_.forget_late_mismatch({.call = 2});
  EXPECT_FALSE(ledger_.has_late_mismatch());
}

TEST_F(CallLedgerTest, TheLastFailedCallsAreKept) {
  constexpr std::uint64_t kMost = Transport::kMostWaitingControls;
  EXPECT_FALSE(ledger_.has_failed_calls());
  for (std::uint64_t call = 1; call <= kMost + 2; ++call) {
    ledger_.note_failed({.call = call});
  }
  EXPECT_TRUE(ledger_.has_failed_calls());
  EXPECT_FALSE(ledger_.has_failed({.call = 2}));
  EXPECT_TRUE(ledger_.has_failed({.call = 3}));
  EXPECT_TRUE(ledger_.has_failed({.call = kMost + 2}));
  EXPECT_FALSE(ledger_.has_failed({.call = 3, .partner = 1}));
}

TEST_F(CallLedgerTest, AnUnexpectedMessageIsRejectedUnlessItsCallFailedHere) {
  ledger_.note_failed({.call = 4});
  ledger_.report_unexpected(2, 4, "barrier");
  EXPECT_TRUE(transport_.outbox()->reports.empty());
  EXPECT_FALSE(ledger_.has_late_mismatch());
  ledger_.report_unexpected(2, 5, "barrier");
  const auto& reports = transport_.outbox()->reports;
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].first, 2);
  EXPECT_EQ(reports[0].second.kind, ControlMessage::Kind::Rejection);
  EXPECT_EQ(reports[0].second.text,
            "rank 2 sent a message in call 5, barrier, that rank 0 did not expect: senders and "
            "receivers of that call do not match");
  EXPECT_EQ(ledger_.take_late_mismatch(), reports[0].second.text);
}

}  // namespace
}  // namespace bluefog::testing
