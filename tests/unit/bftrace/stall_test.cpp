#include "tools/bftrace/stall.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::bftrace {
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

FlightRecord at_time(double written_at, double waited, FlightRecord record) {
  record.written_at = written_at;
  record.calls.back().begun_s_ago = waited;
  return record;
}

// Rank 1 was stopped for 9 s: ranks 0 and 2 gave up after 5 s, and its own call found them gone.
TEST(ExplainStall, NamesARankThatCameWhenOthersHadGivenUp) {
  const FlightRecord first = at_time(1005.0, 5.0, waiting(0, {1}));
  const FlightRecord other = at_time(1005.5, 5.0, waiting(2, {0, 1}));
  const FlightRecord stopped = at_time(1009.25, 0.25, waiting(1, {0, 2}));
  EXPECT_THAT(
      explain_stall({first, stopped}),
      HasSubstr(
          "\n\nRank 1 held up rank 0: it began call 7, allreduce(float32[4]), 9.0 s after rank 0 "
          "had begun to wait for it, and 4.0 s after rank 0 wrote its record; until then it was "
          "stopped, or computing.\n"));
  const std::string text = explain_stall({first, other, stopped});
  EXPECT_THAT(text,
              HasSubstr("Rank 1 held up ranks 0, 2: it began call 7, allreduce(float32[4]), 9.0 s "
                        "after the first of them had begun to wait"));
  EXPECT_THAT(text, Not(HasSubstr("for each other")));
}

// Rank 1 waited in call 6 for a rank that came to it 8 s late, and then made the call of the
// others.
TEST(ExplainStall, NamesTheCallThatKeptALateRank) {
  const FlightRecord waiter = at_time(1005.0, 5.0, waiting(0, {1}));
  FlightRecord late = at_time(1009.25, 0.25, waiting(1, {0}));
  late.calls.insert(
      late.calls.begin(),
      {.call = 6, .text = "barrier", .state = "complete", .begun_s_ago = 8.5, .ended_s_ago = 0.5});
  EXPECT_THAT(
      explain_stall({waiter, late}),
      HasSubstr("\n\nRank 1 came late to rank 0: it began call 7, allreduce(float32[4]), 9.0 s "
                "after rank 0 had begun to wait for it, and 4.0 s after rank 0 wrote its "
                "record; until then it was in call 6, barrier, complete, which took it 8.0 s: "
                "whoever came late to that held up all.\n"));
  late.calls.front().ended_s_ago = 7.0;  // and computed for most of the time
  EXPECT_THAT(explain_stall({waiter, late}), HasSubstr("Rank 1 held up rank 0"));
}

TEST(ExplainStall, ACircleOfCallsThatOverlapStaysOne) {
  const FlightRecord first = at_time(1005.0, 5.0, waiting(0, {1}));
  const std::string circle = "Ranks 0, 1 wait for each other";
  EXPECT_THAT(explain_stall({first, at_time(1005.5, 1.5, waiting(1, {0}))}), HasSubstr(circle));
  // Records of old tell no time.
  EXPECT_THAT(explain_stall({first, waiting(1, {0})}), HasSubstr(circle));
  EXPECT_THAT(explain_stall({waiting(0, {1}), at_time(1009.0, 0.0, waiting(1, {0}))}),
              HasSubstr(circle));
}

RecordedCall window_call(std::string text, std::string what, std::vector<int> waits_for) {
  return {.text = std::move(text),
          .state = "running",
          .begun_s_ago = 2.0,
          .is_window_call = true,
          .what = std::move(what),
          .waits_for = std::move(waits_for)};
}

// Rank 0 wants a mutex that rank 1 holds, which waits for rank 0 in a barrier.
TEST(ExplainStall, NamesCallsOfWindows) {
  FlightRecord asker = idle(0);
  asker.calls.push_back(window_call("win_put(float32[4], window 'w')",
                                    "the mutex of rank 2, which rank 1 holds", {1}));
  FlightRecord holder = idle(1);
  holder.calls.push_back(window_call("mutex(float32[4], window 'w')", "the mutex of rank 2", {}));
  holder.calls.back().state = "held";
  std::string text = explain_stall({asker, holder});
  EXPECT_THAT(text,
              HasSubstr("  win_put(float32[4], window 'w'), begun 2.0 s before; waits for the "
                        "mutex of rank 2, which rank 1 holds\n"));
  EXPECT_THAT(text,
              HasSubstr("  mutex(float32[4], window 'w'), begun 2.0 s before, holds the mutex "
                        "of rank 2\n"));
  EXPECT_THAT(text,
              HasSubstr("Rank 1 is waited for and waits for nobody: it holds up the others.\n"
                        "  Rank 0 waits for rank 1 in win_put(float32[4], window 'w'): the mutex "
                        "of rank 2, which rank 1 holds.\n"));
  EXPECT_THAT(explain_stall({asker}),
              HasSubstr("Rank 1 is waited for and left no record: it ended, "
                        "or was still computing.\n  Rank 0 waits for rank 1"));
  holder.calls.push_back(waiting(1, {0}).calls[0]);
  text = explain_stall({asker, holder});
  EXPECT_THAT(text, HasSubstr("Ranks 0, 1 wait for each other: compare their calls above.\n"
                              "  Rank 0 waits for rank 1 in win_put"));
}

TEST(ExplainStall, RecordsThatDoNotBelongTogetherAreRefused) {
  EXPECT_THROW((void)explain_stall({}), InvalidArgument);
  EXPECT_THROW((void)explain_stall({idle(0), idle(0)}), InvalidArgument);
  FlightRecord other = idle(1);
  other.size = 8;
  EXPECT_THROW((void)explain_stall({idle(0), other}), InvalidArgument);
}

FlightRecord in_epoch(std::uint64_t epoch, std::vector<int> ranks, FlightRecord record) {
  record.epoch = epoch;
  record.ranks = std::move(ranks);
  for (RecordedCall& call : record.calls) {
    call.epoch = epoch;
  }
  return record;
}

// Rank 1 was stopped, and the others went on without it; rank 4 has joined them since.
TEST(ExplainStall, TheNewestEpochCounts) {
  const std::vector<int> members{0, 2, 3, 4};
  FlightRecord first = in_epoch(2, members, waiting(0, {4}));
  FlightRecord before = waiting(0, {1});
  before.calls[0].state = "failed";
  first.calls.insert(first.calls.begin(), before.calls[0]);  // a call of the group that was
  first.size = 5;
  FlightRecord joined = in_epoch(2, members, idle(4));
  joined.size = 5;
  const FlightRecord left_out = in_epoch(0, {0, 1, 2, 3}, waiting(1, {0}));
  const FlightRecord silent = in_epoch(1, {0, 2, 3}, waiting(2, {3}));
  const std::string text = explain_stall({left_out, first, joined, silent});
  EXPECT_THAT(text, HasSubstr("rank 0, in epoch 2 with ranks 0, 2, 3, 4: nothing moved\n"
                              "  epoch 2, call 7, allreduce(float32[4]), begun 5.0 s before; no "
                              "message from 4\n"));
  EXPECT_THAT(text, HasSubstr("\n\nRank 1's record is of epoch 0; in epoch 2 ranks 0, 2, 3, 4 have "
                              "gone on without it.\n"
                              "Rank 2's record is of epoch 1; in epoch 2 ranks 0, 2, 3, 4 train, "
                              "that one too, which has written none since.\n"
                              "Rank 4 is waited for and waits for nobody"));
  EXPECT_THAT(text, Not(HasSubstr("Rank 1 is waited for")));
  EXPECT_THAT(text, Not(HasSubstr("Rank 3 is waited for")));
}

TEST(ParseRecord, ReadsWhatARankWrites) {
  const FlightRecord record = parse_record("a", R"({"bluefog_flight_record": 1, "rank": 1,
    "size": 2, "reason": "late", "calls": [{"call": 3, "partner": 0, "kind": "pair_gossip",
    "dtype": "float32", "count": 9, "name": "w", "state": "running", "begun_s_ago": 1.5,
    "no_message_from": [0], "not_taken_by": []}]})");
  EXPECT_EQ(record.calls[0].text, "pair_gossip(float32[9], name 'w')");
  EXPECT_EQ(record.calls[0].partner, 0);
  EXPECT_EQ(record.calls[0].no_message_from, std::vector<int>{0});
  EXPECT_EQ(record.written_at, std::nullopt);
  const FlightRecord window = parse_record("a", R"({"bluefog_flight_record": 1, "rank": 1,
    "size": 2, "epoch": 3, "ranks": [1], "reason": "late", "written_at": 1700000000.25, "calls": [
    {"window_call": true, "kind": "win_get", "epoch": 2,
    "dtype": "float32", "count": 9, "name": "w", "state": "running", "begun_s_ago": 1.5,
    "context": 2, "what": "an answer of rank 0", "waits_for": [0]}]})");
  EXPECT_EQ(window.calls[0].text, "win_get(float32[9], window 'w')");
  EXPECT_EQ(window.calls[0].what, "an answer of rank 0");
  EXPECT_EQ(window.calls[0].waits_for, std::vector<int>{0});
  EXPECT_EQ(window.calls[0].context, 2);
  EXPECT_EQ(window.written_at, 1700000000.25);
  EXPECT_EQ(record.epoch, 0U);
  EXPECT_EQ(window.epoch, 3U);
  EXPECT_EQ(window.ranks, std::vector<int>{1});
  EXPECT_EQ(window.calls[0].epoch, 2U);
  EXPECT_THROW((void)parse_record("a", "{}"), InvalidArgument);
  EXPECT_THROW((void)parse_record("a", "{"), InvalidArgument);
}

TEST(ParseRecord, WhatATerminalWouldObeyIsNotKept) {
  const FlightRecord record = parse_record("a", R"({"bluefog_flight_record": 1, "rank": 1,
    "size": 2, "reason": "la\u001b[2Jte", "calls": [{"call": 3, "kind": "b\u0007",
    "dtype": "float\u0000", "count": 9, "name": "w\r\u00e4", "state": "run\u007f",
    "begun_s_ago": 1.5, "what": "x\ny"}]})");
  EXPECT_EQ(record.reason, "la?[2Jte");
  EXPECT_EQ(record.calls[0].text, "b?(float?[9], name 'w?ä')");
  EXPECT_EQ(record.calls[0].state, "run?");
  EXPECT_EQ(record.calls[0].what, "x?y");
}

TEST(ParseRecord, SaysWhatIsWrongWithOthers) {
  const auto text_of = [](const std::string& record) -> std::string {
    try {
      (void)parse_record("a", record);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(text_of(R"({"bluefog_flight_record": 1, "rank": "x"})"),
            R"(a: expected a flight record: an integer of 32 bits as "rank", found "x")");
  EXPECT_EQ(text_of(R"({"bluefog_flight_record": 1, "rank": -5, "size": 2, "reason": ""})"),
            "a: expected a flight record of one of at least 1 ranks, found rank -5 of 2");
  const auto of_call = [&](const std::string& field) {
    return text_of(R"({"bluefog_flight_record": 1, "rank": 0, "size": 2, "reason": "", "calls": [
      {"kind": "barrier", "state": "running", "begun_s_ago": 1, "call": 1, )" +
                   field + "}]}");
  };
  EXPECT_EQ(of_call(R"("partner": 1)"), "no error");
  EXPECT_EQ(of_call(R"("epoch": -1)"),
            R"(a: expected a flight record: an integer of 64 bits as "epoch", found -1)");
  EXPECT_EQ(of_call(R"("waits_for": [1, 1.5])"),
            R"(a: expected a flight record: an integer of 32 bits in "waits_for", found 1.5)");
  EXPECT_EQ(of_call(R"("waits_for": {"a": 1})"),
            R"(a: expected a flight record: an array as "waits_for", found object)");
}

TEST(ParseRecord, TakesNoNumberForAnotherOne) {
  const auto text_of = [](const std::string& rank) {
    return testing::error_of<InvalidArgument>([&] {
      (void)parse_record("a", R"({"bluefog_flight_record": 1, "size": 9, "reason": "", "calls": [],
                                  "rank": )" +
                                  rank + "}");
    });
  };
  for (const char* const rank : {"4294967296", "18446744073709551615", "0.5", "1e300"}) {
    EXPECT_THAT(text_of(rank),
                HasSubstr(R"(expected a flight record: an integer of 32 bits as "rank")"))
        << rank;
  }
}

TEST(ParseRecord, ValuesThatAreNestedWithoutEndAreRefused) {
  EXPECT_THAT(testing::error_of<InvalidArgument>(
                  [] { (void)parse_record("a", std::string(1'000'000, '[')); }),
              HasSubstr("a: expected values in at most 100 levels"));
}

}  // namespace
}  // namespace bluefog::bftrace
