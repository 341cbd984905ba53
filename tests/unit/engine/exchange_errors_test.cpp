// Errors of an exchange: aborts, mismatches, refusals and calls that overtake it.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/engine/scripted_exchange.hpp"

namespace bluefog::testing {
namespace {

using ExchangeErrors = ScriptedExchange;

TEST_F(ExchangeErrors, AnAbortInTheMiddleEndsItWithTheWritersReason) {
  for (const Pace pace : {Pace::Together, Pace::Each}) {
    for (const bool is_reported : {false, true}) {
      incoming_.clear();
      sum_ = {};
      expect_from({{.rank = 1, .weight = 1.0}});
      spec().pace = pace;
      start();
      transport_.begin_message(1, header());
      transport_.deliver(1, rising_bytes(kFirstPiece, 5));
      EXPECT_TRUE(step());
      EXPECT_FALSE(step());
      EXPECT_EQ(sum_.used_of[0], kFirstPiece);
      transport_.abort_message(1, "no spa");
      if (is_reported) {
        reports_.refusals[{1, kCall}] = "no space left";
      }
      EXPECT_EQ(error_of_steps<PeerFailure>(),
                std::string("rank 0, call 7, neighbor_allreduce(uint8[100]): rank 1 gave up in the "
                            "middle of it: ") +
                    (is_reported ? "no space left" : "no spa"));
      transport_.finish(1, Lane::Ordinary);
      reports_.refusals.clear();
    }
  }
}

TEST_F(ExchangeErrors, AMismatchNamesBothSidesAndTellsTheOther) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  MessageHeader other = header();
  other.envelope = Envelope::make(OpKind::Allreduce, Dtype::Float32, 25);
  transport_.send_message(1, other, rising_bytes(kBytes, 5));
  const std::string both =
      "rank 1 called allreduce(float32[25]), rank 0 called neighbor_allreduce(uint8[100])";
  EXPECT_EQ(error_of_steps<MismatchError>(),
            "rank 0, call 7, neighbor_allreduce(uint8[100]): mismatched calls: " + both);
  const auto& reports = transport_.outbox()->reports;
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].first, 1);
  EXPECT_EQ(reports[0].second.kind, ControlMessage::Kind::Rejection);
  EXPECT_EQ(reports[0].second.call, kCall);
  EXPECT_EQ(reports[0].second.text, both);
}

TEST_F(ExchangeErrors, AMismatchOfBytesNamesThem) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  transport_.send_message(1, header(), rising_bytes(kBytes - 4, 5));
  EXPECT_EQ(error_of_steps<MismatchError>(),
            "rank 0, call 7, neighbor_allreduce(uint8[100]): mismatched calls: rank 1 called "
            "neighbor_allreduce(uint8[100]) and sent 96 bytes, rank 0 called "
            "neighbor_allreduce(uint8[100]) and expected 100 bytes");
}

TEST_F(ExchangeErrors, ARefusalBeforeTheHeaderEndsIt) {
  expect_from({{.rank = 1, .weight = 1.0}, {.rank = 2, .weight = 1.0}});
  spec();
  start();
  reports_.refusals[{2, kCall}] = "no such tensor";
  EXPECT_FALSE(step()) << "the message may have come before the report";
  EXPECT_EQ(error_of_steps<PeerFailure>(),
            "rank 0, call 7, neighbor_allreduce(uint8[100]): rank 2 ended this call with an error: "
            "no such tensor");
}

TEST_F(ExchangeErrors, ARefusalAfterTheMessageLeavesItWhole) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  transport_.begin_message(1, header());
  EXPECT_TRUE(step());
  reports_.refusals[{1, kCall}] = "failed after its message";
  EXPECT_FALSE(step());
  transport_.deliver(1, rising_bytes(kBytes, 5));
  EXPECT_TRUE(step());
  EXPECT_TRUE(exchange_.finished());
}

TEST_F(ExchangeErrors, ACallThatASourceHasGivenUpEndsAlthoughItsMessageIsHere) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  transport_.begin_message(1, header());
  EXPECT_TRUE(step());
  transport_.deliver(1, rising_bytes(kBytes, 5));
  reports_.abandoned[{1, kCall}] = "interrupted";
  EXPECT_EQ(error_of_steps<PeerFailure>(),
            "rank 0, call 7, neighbor_allreduce(uint8[100]): rank 1 has given up this call: "
            "interrupted");
  EXPECT_EQ(sum_.used_of[0], 0U);
}

TEST_F(ExchangeErrors, ALaterCallInTheMessagesPlaceSaysThatNoneWasSent) {
  expect_from({{.rank = 1, .weight = 1.0}});
  for (const Lane lane : {Lane::Ordinary, Lane::Deep}) {
    spec();
    start();
    transport_.send_message(1, header(kCall + 2), rising_bytes(kBytes, 5), lane);
    EXPECT_FALSE(step());
    EXPECT_FALSE(step()) << "a report that says more may still come";
    EXPECT_EQ(error_of_steps<MismatchError>(),
              "rank 0, call 7, neighbor_allreduce(uint8[100]): expected a message from rank 1, but "
              "that rank sent none in this call and has gone on to call 9, "
              "neighbor_allreduce(uint8[100]); all ranks must make the same calls in the same "
              "order");
    EXPECT_EQ(transport_.waiting_messages(1, lane), 1U) << "it is of a call to come";
    transport_.consume(1, lane, kBytes);
    transport_.finish(1, lane);
  }
}

TEST_F(ExchangeErrors, AMessageThatALaterOneOfAnotherLaneHasOvertakenIsWaitedFor) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  transport_.set_lanes_overtake(true);
  transport_.send_message(1, header(kCall + 2), rising_bytes(kBytes, 5), Lane::Deep);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(60)) {
    ASSERT_FALSE(step());
  }
  transport_.send_message(1, header(), rising_bytes(kBytes, 5));
  EXPECT_TRUE(step());
  EXPECT_TRUE(exchange_.finished());
}

TEST_F(ExchangeErrors, ALaterCallWaitsForTheReportAboutThisOne) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  transport_.send_message(1, header(kCall + 1), rising_bytes(kBytes, 5));
  EXPECT_FALSE(step());
  EXPECT_FALSE(step());
  reports_.refusals[{1, kCall}] = "out of memory";
  EXPECT_EQ(error_of_steps<PeerFailure>(),
            "rank 0, call 7, neighbor_allreduce(uint8[100]): rank 1 ended this call with an error: "
            "out of memory");
}

TEST_F(ExchangeErrors, AMessageOfTheSameCallOnAnotherLaneNamesItsKind) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  MessageHeader other = header();
  other.envelope = Envelope::make(OpKind::Broadcast, Dtype::UInt8, kBytes);
  transport_.send_message(1, other, rising_bytes(kBytes, 5), Lane::Deep);
  EXPECT_EQ(error_of_steps<MismatchError>(),
            "rank 0, call 7, neighbor_allreduce(uint8[100]): rank 1 makes this call as "
            "broadcast(uint8[100]), of another kind or completion; all ranks must make the same "
            "calls in the same order");
}

TEST_F(ExchangeErrors, MessagesOfEarlierCallsAreDroppedUnlessTheseAreUnderWay) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  reports_.under_way = {kCall - 1};
  transport_.send_message(1, header(kCall - 2), rising_bytes(kBytes, 1));
  transport_.send_message(1, header(kCall - 1), rising_bytes(kBytes, 2));
  transport_.send_message(1, header(), rising_bytes(kBytes, 3));
  EXPECT_FALSE(step());
  EXPECT_EQ(transport_.waiting_messages(1), 2U);
  EXPECT_EQ(reports_.unexpected,
            std::vector<std::string>{"1, call 5, neighbor_allreduce(uint8[100])"});
  reports_.under_way.clear();
  EXPECT_TRUE(step());
  EXPECT_TRUE(exchange_.finished());
  EXPECT_EQ(sum_.sum[0], 3.0);
  EXPECT_EQ(reports_.unexpected.size(), 2U);
}

}  // namespace
}  // namespace bluefog::testing
