// Orders in which control messages and messages of data reach an engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/engine/scripted_engine.hpp"

namespace bluefog::testing {
namespace {

using EngineReports = ScriptedEngine;

/// A call in place of two exchanges: after the first one, which keeps its buffer, it has changed it
/// by itself or not.
class ChangingCall final : public Operation {
 public:
  explicit ChangingCall(bool changes) : changes_(changes) { mark_in_place(); }
  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  bool next(ExchangeSpec& spec) override {
    spec.envelope = envelope_;
    spec.pace = Pace::Each;
    spec.last = false;
    spec.keeps_buffers = is_first_;
    spec.follows_change = !is_first_ && changes_;
    if (!is_first_) {
      spec.incoming = {&incoming_, 1};
    }
    is_first_ = false;
    return true;
  }
  void receive(std::size_t /*offset*/, std::size_t /*bytes*/,
               std::span<const Piece> /*pieces*/) override {}

 private:
  bool changes_;
  bool is_first_ = true;
  Envelope envelope_ = ScriptedCall::envelope_of(4);
  Incoming incoming_{.source = {.rank = 1}, .bytes = 4};
};

constexpr auto kRejection = ControlMessage::Kind::Rejection;
constexpr auto kAbandoned = ControlMessage::Kind::Abandoned;

TEST_F(EngineReports, ARefusalEndsItsCallWheneverItComesBeforeTheMessage) {
  script([](ScriptedTransport& t) { t.send_report(1, refusal(1, "not this one")); });
  EXPECT_EQ(error_of<PeerFailure>([&] { run({.sources = {1}}); }),
            "rank 0, call 1, neighbor_allgather(uint8[4]): rank 1 ended this call with an error: "
            "not this one");
  const Work work = submit({.sources = {1}});
  script([](ScriptedTransport& t) { t.send_report(1, refusal(2, "nor this one")); });
  EXPECT_EQ(error_of<PeerFailure>([&] { work.wait(); }),
            "rank 0, call 2, neighbor_allgather(uint8[4]): rank 1 ended this call with an error: "
            "nor this one");
}

TEST_F(EngineReports, ARefusalThatComesWithTheMessageLeavesTheCallWhole) {
  script([](ScriptedTransport& t) {
    send(t, 1, 1);
    t.send_report(1, refusal(1, "failed later"));
  });
  run({.sources = {1}});
}

TEST_F(EngineReports, RefusalsOfEarlierAndLaterCallsFindTheirCallsInEveryOrder) {
  std::array<int, 3> order{0, 1, 2};
  do {
    connect({});
    const Work first = submit({.sources = {1}});
    script([&](ScriptedTransport& t) {
      for (const int event : order) {
        if (event == 0) {
          t.send_report(1, refusal(1, "first"));
        } else if (event == 1) {
          t.send_report(1, refusal(2, "second"));
        } else {
          send(t, 1, 3);
        }
      }
    });
    const Work second = submit({.sources = {1}});
    const auto call = make_call({.sources = {1}});
    const Work third = engine_->submit(call);
    const std::string text = "neighbor_allgather(uint8[4]): rank 1 ended this call with an error: ";
    EXPECT_EQ(error_of<PeerFailure>([&] { first.wait(); }), "rank 0, call 1, " + text + "first");
    EXPECT_EQ(error_of<PeerFailure>([&] { second.wait(); }), "rank 0, call 2, " + text + "second");
    third.wait();
    EXPECT_EQ(call->received[0], rising_bytes(4, 1));
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(EngineReports, ACallThatAPeerHasGivenUpEndsAlthoughItsMessageIsHere) {
  EXPECT_FALSE(engine_->has_abandoned());
  script([](ScriptedTransport& t) {
    send(t, 1, 1);
    t.send_report(1, report(kAbandoned, 1, "interrupted"));
  });
  EXPECT_EQ(error_of<PeerFailure>([&] { run({.sources = {1}}); }),
            "rank 0, call 1, neighbor_allgather(uint8[4]): rank 1 has given up this call: "
            "interrupted");
  EXPECT_TRUE(engine_->has_abandoned());
}

TEST_F(EngineReports, ACallThatAPeerMakesOnAnotherDeviceSaysWhere) {
  for (const bool runs_there : {true, false}) {
    connect({});
    const OpKind there = runs_there ? on_device(OpKind::NeighborAllgather)
                                    : captured(on_device(OpKind::NeighborAllgather));
    script(
        [&](ScriptedTransport& t) { t.show_standing(1, {.begun = {.call = 1, .kind = there}}); });
    EXPECT_EQ(error_of<MismatchError>([&] { run({.sources = {1}}); }),
              std::string("rank 0, call 1, neighbor_allgather(uint8[4]): expected a message from "
                          "rank 1, but that rank makes this call as neighbor_allgather on CUDA") +
                  (runs_there ? "" : ", in a capture") +
                  "; all ranks must make the same calls in the same order");
  }
}

TEST_F(EngineReports, ARejectionEndsItsCallWhileThatIsUnderWay) {
  const Work work = submit({.sources = {1}, .readers = {1, 2}});
  script([](ScriptedTransport& t) { t.send_report(2, report(kRejection, 1, "wrong size")); });
  const std::string text = "rank 0, call 1: rank 2 did not accept this rank's message: wrong size";
  EXPECT_EQ(error_of<MismatchError>([&] { work.wait(); }), text);
  EXPECT_EQ(sent_reports(),
            (std::vector<std::string>{"rank 1, call 1: " + text, "rank 2, call 1: " + text}));
}

TEST_F(EngineReports, ALateRejectionIsReportedOnceByTheNextCall) {
  run({.readers = {1, 2}});
  script([](ScriptedTransport& t) {
    t.send_report(1, report(kRejection, 1, "wrong size"));
    t.send_report(2, report(kRejection, 1, "wrong size too"));
  });
  EXPECT_EQ(error_of<LateMismatchError>([&] { run({.readers = {1}}); }),
            "rank 0, call 2, neighbor_allgather(uint8[4]): heard of an earlier call only now: rank "
            "0, call 1: rank 1 did not accept this rank's message: wrong size");
  run({.readers = {1}});
}

TEST_F(EngineReports, ALateRejectionWaitsForTheEndOfALargerCall) {
  run({.readers = {1}});
  script([](ScriptedTransport& t) { t.send_report(1, report(kRejection, 1, "wrong size")); });
  {
    const Engine::LargerCall larger(*engine_);
    run({.readers = {1}});
    run({.readers = {1}});
  }
  EXPECT_EQ(error_of<LateMismatchError>([&] { run({.readers = {1}}); }),
            "rank 0, call 4, neighbor_allgather(uint8[4]): heard of an earlier call only now: rank "
            "0, call 1: rank 1 did not accept this rank's message: wrong size");
}

TEST_F(EngineReports, ARejectionOfACallThatFailedHereIsNoNews) {
  script([](ScriptedTransport& t) { t.send_report(1, refusal(1, "not this one")); });
  EXPECT_THROW(run({.sources = {1}}), PeerFailure);
  script([](ScriptedTransport& t) { t.send_report(1, report(kRejection, 1, "it fits not")); });
  run({.readers = {1}});
}

TEST_F(EngineReports, AMessageThatNoCallTookIsReportedToBothSides) {
  run({.readers = {1}});
  script([](ScriptedTransport& t) {
    send(t, 1, 1);
    send(t, 1, 2);
  });
  const std::string both =
      "rank 1 sent a message in call 1, neighbor_allgather(uint8[4]), that rank 0 did not expect: "
      "senders and receivers of that call do not match";
  EXPECT_EQ(
      error_of<LateMismatchError>([&] { run({.sources = {1}}); }),
      "rank 0, call 2, neighbor_allgather(uint8[4]): heard of an earlier call only now: " + both);
  EXPECT_EQ(sent_reports(), std::vector<std::string>{"rank 1, call 1: " + both});
}

TEST_F(EngineReports, MessagesOfFailedCallsAreDroppedSilently) {
  engine_->refuse("bad argument");
  EXPECT_EQ(sent_reports(), (std::vector<std::string>{"rank 1, call 1: bad argument",
                                                      "rank 2, call 1: bad argument"}));
  script([](ScriptedTransport& t) {
    send(t, 1, 1, 50);
    send(t, 1, 2, 60);
  });
  const auto call = make_call({.sources = {1}});
  engine_->submit(call).wait();
  EXPECT_EQ(call->received[0], rising_bytes(4, 60));
  EXPECT_EQ(outbox_->reports.size(), 2U);
}

TEST_F(EngineReports, MessagesOfFailedCallsAreDroppedWhileNobodyWaits) {
  engine_->refuse("bad argument");
  script([](ScriptedTransport& t) { send(t, 1, 1); });
  EXPECT_TRUE(comes_true([&] { return transport_->waiting_messages(1) == 0; }));
  script([](ScriptedTransport& t) { send(t, 1, 2); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  script([](ScriptedTransport& t) {
    EXPECT_EQ(t.waiting_messages(1), 1U) << "call 2 may still be made here";
  });
}

constexpr auto kInquiry = ControlMessage::Kind::Inquiry;
constexpr auto kContradiction = ControlMessage::Kind::Contradiction;

TEST_F(EngineReports, AnInquiryAboutAnotherCallEndsItOnBothSides) {
  const Work work = submit({.sources = {1, 2}});
  script([](ScriptedTransport& t) { t.send_report(1, report(kInquiry, 1, "reduce(uint8[4])")); });
  const std::string both =
      "mismatched calls: rank 1 called reduce(uint8[4]), rank 0 called neighbor_allgather(uint8[4])";
  const std::string text = "rank 0, call 1, neighbor_allgather(uint8[4]): " + both;
  EXPECT_EQ(error_of<MismatchError>([&] { work.wait(); }), text);
  EXPECT_EQ(outbox_->reports.front().second.kind, kContradiction);
  EXPECT_EQ(sent_reports(),
            (std::vector<std::string>{"rank 1, call 1: " + both, "rank 1, call 1: " + text,
                                      "rank 2, call 1: " + text}));
}

TEST_F(EngineReports, AnInquiryAboutTheSameCallChangesNothing) {
  const Work work = submit({.sources = {1}});
  script([](ScriptedTransport& t) {
    t.send_report(1, report(kInquiry, 1, "neighbor_allgather(uint8[4])"));
    send(t, 1, 1);
  });
  work.wait();
  EXPECT_TRUE(sent_reports().empty());
}

TEST_F(EngineReports, InquiriesOfRanksAtAnotherPartOfACallChangeNothing) {
  const auto ask = [](ScriptedTransport& t) {
    t.send_report(1, report(kInquiry, 1, "neighbor_allgather(float32[1])"));
  };
  const Work work = submit({.sources = {1}, .changes_envelope = true});
  script([&](ScriptedTransport& t) {
    ask(t);
    send(t, 1, 1);
  });
  work.wait();
  script(ask);
  run({.readers = {2}});
  EXPECT_TRUE(sent_reports().empty());
}

TEST_F(EngineReports, AnInquiryAboutALaterCallWaitsForThat) {
  script([](ScriptedTransport& t) {
    t.send_report(1, report(kInquiry, 2, "reduce(uint8[4])"));
    t.send_report(2, report(kInquiry, 1, "neighbor_allgather(uint8[4])"));
  });
  run({.readers = {2}});
  EXPECT_THROW(run({.sources = {1}}), MismatchError);
  run({.readers = {1}});
}

TEST_F(EngineReports, AnInquiryAboutACallThatIsCompleteComesUpInTheNext) {
  run({.readers = {2}});
  script([](ScriptedTransport& t) { t.send_report(1, report(kInquiry, 1, "reduce(uint8[4])")); });
  EXPECT_EQ(error_of<LateMismatchError>([&] { run({.readers = {2}}); }),
            "rank 0, call 2, neighbor_allgather(uint8[4]): heard of an earlier call only now: "
            "mismatched calls: rank 1 called reduce(uint8[4]), rank 0 called "
            "neighbor_allgather(uint8[4])");
  EXPECT_EQ(outbox_->reports.front().second.kind, kContradiction);
  run({.readers = {2}});
}

TEST_F(EngineReports, AContradictionEndsItsCall) {
  const Work work = submit({.sources = {1}});
  script([](ScriptedTransport& t) {
    t.send_report(1, report(kContradiction, 1, "mismatched calls: one and the other"));
  });
  EXPECT_EQ(error_of<MismatchError>([&] { work.wait(); }),
            "rank 0, call 1, neighbor_allgather(uint8[4]): mismatched calls: one and the other");
}

TEST_F(EngineReports, AWaitAsksTheRanksWhoseMessagesItLacks) {
  const Work work = submit({.sources = {1, 2}});
  script([](ScriptedTransport& t) { send(t, 2, 1); });
  EXPECT_TRUE(comes_true([&] { return !outbox_->reports.empty(); }));
  script([](ScriptedTransport& t) { send(t, 1, 1); });
  work.wait();
  EXPECT_EQ(outbox_->reports.front().second.kind, kInquiry);
  EXPECT_EQ(sent_reports(),
            std::vector<std::string>{"rank 1, call 1: neighbor_allgather(uint8[4])"});
}

TEST_F(EngineReports, CallsOfPairsAreCountedApart) {
  const std::uint64_t first = kFirstPairCall + 1;
  engine_->refuse("bad argument", 2);
  EXPECT_EQ(sent_reports(), std::vector<std::string>{"rank 2, pair call 1: bad argument"});
  script([&](ScriptedTransport& t) {
    t.send_report(2, refusal(first, "of the pair with rank 2"));
    send(t, 1, first, 30);
    send(t, 2, first + 1, 40);
  });
  const auto with_one = make_call({.sources = {1}, .partner = 1});
  engine_->submit(with_one).wait();
  EXPECT_EQ(with_one->received[0], rising_bytes(4, 30));
  const auto with_two = make_call({.sources = {2}, .partner = 2});
  engine_->submit(with_two).wait();
  EXPECT_EQ(with_two->received[0], rising_bytes(4, 40));
}

TEST_F(EngineReports, ACallThatHasChangedBuffersByItselfCountsAsChangedWhenItFails) {
  for (const bool changes : {false, true}) {
    connect({});
    const Work work = engine_->submit(engine_->make_operation<ChangingCall>(changes));
    script([](ScriptedTransport& t) { t.send_report(1, refusal(1, "no receipt")); });
    EXPECT_THROW(work.wait(), PeerFailure);
    const Engine::CallCounts counts = engine_->begin_resync();
    EXPECT_EQ(std::ranges::any_of(counts.changes, [](const auto& one) { return one.call == 1; }),
              changes);
    engine_->end_resync(counts.next_call, counts.pair_calls);
  }
}

}  // namespace
}  // namespace bluefog::testing
