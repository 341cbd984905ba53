// Offers: messages that a rank which needs none of them leaves out.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/engine/scripted_exchange.hpp"

namespace bluefog::testing {
namespace {

class ExchangeOffers : public ScriptedExchange {
 protected:
  static MessageHeader offer(std::uint64_t call) {
    MessageHeader header = ScriptedExchange::header(call, 8);
    header.envelope = envelope();
    header.envelope.kind = offering(header.envelope.kind);
    return header;
  }
  void send_offer(int source, std::uint64_t call) {
    transport_.send_message(source, offer(call), rising_bytes(8, 0));
  }
  /// The exchange after the one of offers, in which rank 2's were left out.
  void start_second(bool leaves_out) {
    ExchangeSpec& next = spec();
    if (leaves_out) {
      next.unneeded_offers = unneeded_;
    }
    exchange_.start(0, CallId::make(kCall, 1), routes_, sum_);
  }
  void send_payload(int source) {
    MessageHeader payload = header();
    payload.id = CallId::make(kCall, 1);
    transport_.send_message(source, payload, rising_bytes(kBytes, 5));
  }

 private:
  std::vector<WeightedRank> unneeded_{{.rank = 1}, {.rank = 2}};
};

TEST_F(ExchangeOffers, AreDroppedWhereNobodyNeedsThem) {
  expect_from({{.rank = 1, .weight = 1.0}});
  send_offer(1, kCall);
  send_offer(2, kCall - 2);
  send_offer(2, kCall);
  send_offer(2, kCall + 1);
  start_second(true);
  send_payload(1);
  EXPECT_TRUE(step());
  EXPECT_TRUE(exchange_.finished());
  EXPECT_EQ(sum_.used_of[0], kBytes);
  EXPECT_TRUE(reports_.unexpected.empty());
  EXPECT_EQ(transport_.waiting_messages(2), 1U) << "that of a later call may be needed";
}

TEST_F(ExchangeOffers, OfACallUnderWayStayForIt) {
  expect_from({{.rank = 1, .weight = 1.0}});
  reports_.under_way.insert(kCall - 1);
  send_offer(2, kCall - 1);
  start_second(true);
  step();
  EXPECT_EQ(transport_.waiting_messages(2), 1U);
}

TEST_F(ExchangeOffers, ThatComeLateAreNoMismatch) {
  expect_from({{.rank = 1, .weight = 1.0}});
  reports_.unneeded[1] = kCall - 1;
  send_offer(1, kCall - 1);
  start_second(false);
  send_payload(1);
  EXPECT_TRUE(step());
  EXPECT_TRUE(exchange_.finished());
  EXPECT_TRUE(reports_.unexpected.empty());
}

TEST_F(ExchangeOffers, ThatNobodyHasDeclinedAreUnexpected) {
  expect_from({{.rank = 1, .weight = 1.0}});
  send_offer(1, kCall - 1);
  start_second(false);
  send_payload(1);
  EXPECT_TRUE(step());
  EXPECT_EQ(reports_.unexpected,
            std::vector<std::string>{"1, call 6, neighbor_allreduce(uint8[100])"});
}

TEST_F(ExchangeOffers, MeetNoPayload) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec();
  start();
  send_offer(1, kCall);
  EXPECT_EQ(error_of_steps<MismatchError>(),
            "rank 0, call 7, neighbor_allreduce(uint8[100]): mismatched calls: rank 1 called "
            "neighbor_allreduce(uint8[100]), rank 0 called neighbor_allreduce(uint8[100]); rank 1 "
            "knows the whole step's graph (as from a schedule, or where the call compares plans) "
            "and forms sums where buffers lie, and rank 0 does not");
}

TEST_F(ExchangeOffers, ThatWereDeclinedMeetNoPayloadEither) {
  for (const bool is_other_call : {false, true}) {
    expect_from({{.rank = 1, .weight = 1.0}});
    MessageHeader payload = header();
    if (is_other_call) {
      payload.envelope = envelope(4);
    }
    transport_.send_message(1, payload, rising_bytes(kBytes, 5));
    start_second(true);
    const std::string found = error_of_steps<MismatchError>();
    const bool names_graph = found.find("rank 0 knows the whole step's graph") != std::string::npos;
    EXPECT_EQ(names_graph, !is_other_call) << found;
    EXPECT_NE(found.find(is_other_call ? "rank 1 called neighbor_allreduce(uint8[4]), rank 0 called"
                                       : "rank 1 called neighbor_allreduce(uint8[100])"),
              std::string::npos)
        << found;
    transport_.consume(1, Lane::Ordinary, kBytes);
    transport_.finish(1, Lane::Ordinary);
    incoming_.clear();
  }
}

}  // namespace
}  // namespace bluefog::testing
