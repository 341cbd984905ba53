// Calls that end early: a peer dies, a wait takes too long, the context is closed.
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/engine/scripted_engine.hpp"

namespace bluefog::testing {
namespace {

using EngineEnds = ScriptedEngine;
using Texts = std::vector<std::string>;

/// The way out, at the end of a time-out.
const std::string kWayOut =
    "; if ranks are a call apart now, resync() on all of them brings them together";
const std::string kCallOne = "rank 0, call 1, neighbor_allgather(uint8[4]): ";

TEST_F(EngineEnds, APeerThatDiesWhileNobodyWaitsEndsTheCallsThatNeedIt) {
  const Work needs_it = submit({.sources = {1}});
  const Work needs_another = submit({.sources = {2}});
  script([](ScriptedTransport& t) { t.die(1, "its process ended"); });
  EXPECT_TRUE(comes_true([&] { return needs_it.done(); }));
  EXPECT_FALSE(needs_another.done());
  EXPECT_EQ(error_of<PeerFailure>([&] { needs_it.wait(); }),
            kCallOne + "waited for rank 1, but its process ended");
  EXPECT_EQ(engine_->cause_of_death(1), "its process ended");
  EXPECT_EQ(engine_->cause_of_death(2), std::nullopt);
  EXPECT_TRUE(engine_->has_dead_peer());
  script([](ScriptedTransport& t) { send(t, 2, 2); });
  needs_another.wait();
}

TEST_F(EngineEnds, TheLastMessageOfADeadPeerIsUsed) {
  const auto call = make_call({.sources = {1}});
  const Work work = engine_->submit(call);
  script([](ScriptedTransport& t) {
    t.die(1, "its process ended", [](ScriptedTransport& late) { send(late, 1, 1, 70); });
  });
  work.wait();
  EXPECT_EQ(call->received[0], rising_bytes(4, 70));
}

// A rank may leave when it has all that it waits for, before this one has taken what it sent.
TEST_F(EngineEnds, AMessageThatHasComeIsThereForWhoeverWaitsLater) {
  const auto call = make_call({.sources = {1}, .consumption = Consumption::OnWait});
  const Work rests = engine_->submit(call);
  const Work needs_more = submit({.sources = {1}});
  script([](ScriptedTransport& t) {
    send(t, 1, 1, 70);
    t.show_standing(1, {.begun = {.call = 1, .kind = OpKind::NeighborAllgather}});
    t.die(1, "it left");
  });
  EXPECT_TRUE(comes_true([&] { return needs_more.done(); }));
  EXPECT_FALSE(rests.done());
  rests.wait();
  EXPECT_EQ(call->received[0], rising_bytes(4, 70));
}

TEST_F(EngineEnds, AMessageOfNothingHasComeWithItsHeader) {
  const Work work = submit({.sources = {1, 2}, .payload = {}, .pace = Pace::Together});
  script([](ScriptedTransport& t) {
    t.send_message(1, header(1, 0), {});
    t.show_standing(1, {.begun = {.call = 1, .kind = OpKind::NeighborAllgather}});
    t.die(1, "it left");
  });
  const Work needs_more = submit({.sources = {1}});
  EXPECT_TRUE(comes_true([&] { return needs_more.done(); }));
  script([](ScriptedTransport& t) { t.send_message(2, header(1, 0), {}); });
  work.wait();
}

TEST_F(EngineEnds, AMessageMayStandBehindThatOfACallThatWaitsForAnotherRank) {
  const Work first = submit({.sources = {1, 2}, .payload = {}, .pace = Pace::Together});
  const auto second = make_call({.sources = {1}});
  const Work behind = engine_->submit(second);
  script([](ScriptedTransport& t) {
    t.send_message(1, header(1, 0), {});
    send(t, 1, 2, 80);
    t.die(1, "it left");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // looks for the dead have been made
  EXPECT_FALSE(behind.done());
  script([](ScriptedTransport& t) { t.send_message(2, header(1, 0), {}); });
  first.wait();
  behind.wait();
  EXPECT_EQ(second->received[0], rising_bytes(4, 80));
}

TEST_F(EngineEnds, AReaderThatDiesEndsTheCallThatHasNoRoom) {
  script([](ScriptedTransport& t) { t.set_open(false); });
  const Work work = submit({.readers = {2}});
  script([](ScriptedTransport& t) { t.die(2, "it left"); });
  EXPECT_EQ(error_of<PeerFailure>([&] { work.wait(); }),
            kCallOne + "waited for rank 2, but it left");
}

TEST_F(EngineEnds, CloseEndsACallInFlightAndTellsThePeers) {
  const Work work = submit({.sources = {1}, .readers = {2}});
  engine_->close();
  const std::string text =
      "rank 0, neighbor_allgather(uint8[4]): the context was closed before it completed";
  EXPECT_TRUE(work.done());
  EXPECT_EQ(error_of<StateError>([&] { work.wait(); }), text);
  EXPECT_EQ(sent_reports(), (Texts{"rank 1, call 1: " + text, "rank 2, call 1: " + text}));
  EXPECT_EQ(error_of<StateError>([&] { (void)submit({.readers = {1}}); }),
            "rank 0, neighbor_allgather(uint8[4]): the context is closed");
  engine_->refuse("too late");
  EXPECT_EQ(outbox_->reports.size(), 2U);
}

TEST_F(EngineEnds, CloseEndsTheWaitOfAnotherThread) {
  const Work work = submit({.sources = {1}});
  std::string text;
  std::thread waiter([&] { text = error_of<StateError>([&] { work.wait(); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  engine_->close();
  waiter.join();
  EXPECT_EQ(text,
            "rank 0, neighbor_allgather(uint8[4]): the context was closed before it completed");
}

TEST_F(EngineEnds, AWaitThatTakesTooLongIsGivenUp) {
  connect({.timeout = std::chrono::milliseconds(100)});
  script([](ScriptedTransport& t) { t.show_call(1, {.call = 5, .kind = OpKind::Barrier}); });
  const std::string text =
      kCallOne +
      "nothing moved for 0.1 s (BLUEFOG_TIMEOUT): no message from rank 1 (last "
      "seen in call 5); no message from rank 2 (not seen yet)" +
      kWayOut;
  EXPECT_EQ(error_of<TimeoutError>([&] { run({.sources = {1, 2}}); }), text);
  EXPECT_TRUE(engine_->has_abandoned());
  ASSERT_EQ(sent_reports(), (Texts{"rank 1, call 1: " + text, "rank 2, call 1: " + text}));
  EXPECT_EQ(outbox_->reports.back().second.kind, ControlMessage::Kind::Abandoned);
  std::string ahead;
  for (int look = 0; look < 1000 && ahead.empty(); ++look) {  // it asks nothing of a busy engine
    ahead = engine_->call_ahead(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(ahead, "call 5, barrier");
  EXPECT_EQ(engine_->call_ahead(2), "");
}

TEST_F(EngineEnds, ACallBehindAnotherSaysWhatThatOneWaitsFor) {
  connect({.timeout = std::chrono::milliseconds(100)});
  script([](ScriptedTransport& t) { t.set_open(false); });
  const Work first = submit({.readers = {2}});
  const Work second = submit({.readers = {1}});
  EXPECT_EQ(error_of<TimeoutError>([&] { second.wait(); }),
            "rank 0, call 2, neighbor_allgather(uint8[4]): nothing moved for 0.1 s "
            "(BLUEFOG_TIMEOUT): behind call 1, neighbor_allgather(uint8[4]), not taken by rank 2 "
            "(not seen yet)" +
                kWayOut);
  EXPECT_FALSE(first.done());
}

TEST_F(EngineEnds, AnInterruptGivesTheCallUp) {
  engine_->set_interrupt_check([] { throw std::runtime_error("interrupted by the user"); });
  EXPECT_EQ(error_of<std::runtime_error>([&] { run({.sources = {1}}); }),
            "interrupted by the user");
  EXPECT_EQ(sent_reports(), (Texts{"rank 1, call 1: interrupted by the user",
                                   "rank 2, call 1: interrupted by the user"}));
  EXPECT_EQ(outbox_->reports[0].second.kind, ControlMessage::Kind::Abandoned);
}

TEST_F(EngineEnds, AnInterruptCheckMayCloseTheEngine) {
  engine_->set_interrupt_check([this] { engine_->close(); });
  EXPECT_EQ(error_of<StateError>([&] { run({.sources = {1}}); }),
            "rank 0, neighbor_allgather(uint8[4]): the context was closed before it completed");
}

TEST_F(EngineEnds, TheEndMarkOfAFailedCallComesBeforeTheNextMessage) {
  script([](ScriptedTransport& t) { t.set_room(2); });
  const Work first = submit({.sources = {1}, .readers = {2}});
  script([](ScriptedTransport& t) {
    t.set_open_for_end_marks(false);
    t.send_report(1, refusal(1, "not this one"));
  });
  EXPECT_THROW(first.wait(), PeerFailure);
  const Work second = submit({.readers = {2}});
  script([](ScriptedTransport& t) { t.set_room(1000); });
  EXPECT_FALSE(second.done());
  script([](ScriptedTransport& t) { t.set_open_for_end_marks(true); });
  second.wait();
  EXPECT_EQ(outbox_->order, (Texts{"publish call 1", "report call 1", "report call 1",
                                   "abort call 1", "publish call 2"}));
  EXPECT_EQ(outbox_->messages[0].data.size(), 2U);
  EXPECT_EQ(outbox_->messages[0].aborted,
            kCallOne + "rank 1 ended this call with an error: not this one");
  EXPECT_EQ(outbox_->messages[1].aborted, std::nullopt);
}

TEST_F(EngineEnds, ALaterCallIsNotSentBeforeAnEarlierOneHasBeen) {
  script([](ScriptedTransport& t) { t.set_room(2); });
  const Work first = submit({.readers = {1}});
  const Work second = submit({.readers = {2}});
  script([](ScriptedTransport& t) {
    EXPECT_EQ(t.outbox()->order, Texts{"publish call 1"});
    t.set_room(1000);
  });
  second.wait();
  EXPECT_TRUE(first.done());
  EXPECT_EQ(outbox_->order, (Texts{"publish call 1", "publish call 2"}));
}

}  // namespace
}  // namespace bluefog::testing
