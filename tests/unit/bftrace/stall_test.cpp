#include "bluefog_cpp/bftrace/stall.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::tracing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

FlightRecord waiting(int rank, std::vector<int> for_ranks) {
  return {.rank = rank,
          .size = 4,
          .reason = "nothing moved",
          .calls = {{.call = 7,
                     .text = "allreduce(float32[4])",
                     .state = "running",
                     .begun_s_ago = 5.0,
                     .no_message_from = std::move(for_ranks)}}};
}

FlightRecord idle(int rank) {
  return {.rank = rank,
          .size = 4,
          .reason = "closed",
          .calls = {{.call = 6, .text = "barrier", .state = "complete"}}};
}

TEST(ExplainStall, NamesTheRankThatHoldsUpTheOthers) {
  const std::string text = explain_stall({waiting(1, {2}), waiting(0, {1, 2}), idle(2)});
  EXPECT_THAT(text,
              HasSubstr("call 7, allreduce(float32[4]), begun 5.0 s before; no message from 1, 2"));
  EXPECT_THAT(text, HasSubstr("waits for nobody; its last was call 6, barrier, complete"));
  EXPECT_THAT(text, HasSubstr("Rank 2 is waited for and waits for nobody"));
  EXPECT_THAT(text, Not(HasSubstr("Rank 1 is waited for")));
}

TEST(ExplainStall, NamesARankWithoutARecord) {
  EXPECT_THAT(explain_stall({waiting(0, {3})}),
              HasSubstr("Rank 3 is waited for and left no record"));
}

TEST(ExplainStall, NamesACircle) {
  EXPECT_THAT(explain_stall({waiting(0, {1}), waiting(1, {2}), waiting(2, {1})}),
              HasSubstr("Ranks 1, 2 wait for each other"));
  EXPECT_THAT(explain_stall({idle(0), idle(1)}), HasSubstr("No rank waits for another one"));
}

TEST(ExplainStall, RecordsThatDoNotBelongTogetherAreRefused) {
  EXPECT_THROW((void)explain_stall({}), InvalidArgument);
  EXPECT_THROW((void)explain_stall({idle(0), idle(0)}), InvalidArgument);
  FlightRecord other = idle(1);
  other.size = 8;
  EXPECT_THROW((void)explain_stall({idle(0), other}), InvalidArgument);
}

TEST(ParseRecord, ReadsWhatARankWrites) {
  const FlightRecord record = parse_record("a", R"({"bluefog_flight_record": 1, "rank": 1,
    "size": 2, "reason": "late", "calls": [{"call": 3, "partner": 0, "kind": "pair_gossip",
    "dtype": "float32", "count": 9, "name": "w", "state": "running", "begun_s_ago": 1.5,
    "no_message_from": [0], "not_taken_by": []}]})");
  EXPECT_EQ(record.calls[0].text, "pair_gossip(float32[9], name 'w')");
  EXPECT_EQ(record.calls[0].partner, 0);
  EXPECT_EQ(record.calls[0].no_message_from, std::vector<int>{0});
  EXPECT_THROW((void)parse_record("a", "{}"), InvalidArgument);
  EXPECT_THROW((void)parse_record("a", "{"), InvalidArgument);
  EXPECT_THROW((void)parse_record("a", R"({"bluefog_flight_record": 1, "rank": "x"})"),
               InvalidArgument);
}

}  // namespace
}  // namespace bluefog::tracing
