#include "bluefog_cpp/engine/letters.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/engine/scripted_transport.hpp"

namespace bluefog::testing {
namespace {

using State = Letters::State;

/// Rank 0, which receives from rank 1.
class Mail : public ::testing::Test {
 protected:
  Letter receipt(const std::string& tag) {
    Letter made{.tag = tag, .is_received = true};
    return made;
  }
  void ask(Letter& letter) { (void)letters_.take_number(1, letter); }

  /// Message number `sequence` of `tag`; `here` of its 4 bytes have come.
  void arrive(const std::string& tag, std::uint16_t sequence, std::size_t here = 4) {
    tags_.push_back(tag);
    const MessageHeader header{
        .id = CallId::make(kFirstMessageCall + kFromHigherRank + 1, sequence),
        .bytes = 4,
        .envelope = Envelope::make(OpKind::Message, Dtype::UInt8, 4, tags_.back())};
    transport_.begin_message(1, header, Lane::Mail);
    transport_.deliver(1, rising_bytes(here, sequence), Lane::Mail);
  }
  State look(const Letter& letter) { return letters_.look_for(transport_, 1, letter).state; }
  std::size_t waiting() { return transport_.waiting_messages(1, Lane::Mail); }

  std::deque<std::string> tags_;
  ScriptedTransport transport_;
  Letters letters_{0, 2};
};

TEST_F(Mail, NumbersByDirectionAndSequencesByTag) {
  Letter first{.tag = "a"};
  Letter second{.tag = "b"};
  Letter third{.tag = "a"};
  EXPECT_EQ(letters_.take_number(1, first), kFirstMessageCall + 1);
  EXPECT_EQ(letters_.take_number(1, second), kFirstMessageCall + 2);
  EXPECT_EQ(letters_.take_number(1, third), kFirstMessageCall + 3);
  EXPECT_EQ(first.sequence, 1);
  EXPECT_EQ(second.sequence, 1);
  EXPECT_EQ(third.sequence, 2);
  Letter asked = receipt("a");
  EXPECT_EQ(letters_.take_number(1, asked), kFirstMessageCall + kReceipt + 1);
  EXPECT_EQ(asked.sequence, 1);
  EXPECT_EQ(call_text(kFirstMessageCall + kFromHigherRank + 4), "message 4");
  EXPECT_EQ(call_text(kFirstMessageCall + kReceipt + 4), "receipt 4");
}

TEST_F(Mail, TheNextMessageStaysOnItsStream) {
  Letter asked = receipt("a");
  ask(asked);
  EXPECT_EQ(look(asked), State::NotHere);
  arrive("a", 1);
  EXPECT_EQ(look(asked), State::Next);
  EXPECT_EQ(waiting(), 1U);
}

TEST_F(Mail, OneThatStandsBeforeItIsKeptUntilItIsAskedFor) {
  Letter asked = receipt("b");
  ask(asked);
  arrive("a", 1, 3);
  EXPECT_EQ(look(asked), State::NotHere);
  Letter early = receipt("a");
  ask(early);
  EXPECT_EQ(look(early), State::NotHere);  // it is not here in whole
  transport_.deliver(1, rising_bytes(1, 4), Lane::Mail);
  EXPECT_EQ(look(early), State::Kept);
  arrive("b", 1);
  EXPECT_EQ(look(asked), State::Next);
}

TEST_F(Mail, AKeptMessageIsThereAtOnce) {
  Letter asked = receipt("b");
  ask(asked);
  arrive("a", 1);
  arrive("b", 1);
  EXPECT_EQ(look(asked), State::Next);
  EXPECT_EQ(waiting(), 1U);
  Letter later = receipt("a");
  ask(later);
  const auto found = letters_.look_for(transport_, 1, later);
  ASSERT_EQ(found.state, State::Kept);
  EXPECT_EQ(found.kept->bytes, rising_bytes(4, 1));
  EXPECT_EQ(found.kept->header.envelope.name, "a");
  letters_.close(1, later);
  EXPECT_EQ(look(later), State::NotHere);
}

TEST_F(Mail, OneWhoseReceiptIsOpenIsLeftToIt) {
  Letter first = receipt("a");
  Letter second = receipt("b");
  ask(first);
  ask(second);
  arrive("a", 1);
  arrive("b", 1);
  EXPECT_EQ(look(second), State::NotHere);
  EXPECT_EQ(look(first), State::Next);
  EXPECT_EQ(waiting(), 2U);
}

TEST_F(Mail, TheMessageOfAFailedReceiptIsDropped) {
  Letter failed = receipt("a");
  ask(failed);
  letters_.give_up(1, failed);
  arrive("a", 1);
  arrive("a", 2);
  Letter next = receipt("a");
  ask(next);
  EXPECT_EQ(next.sequence, 2);
  EXPECT_EQ(look(next), State::Next);
  EXPECT_EQ(waiting(), 1U);
}

TEST_F(Mail, OneThatWasNeverSentIsLeftOut) {
  Letter asked = receipt("a");
  ask(asked);
  arrive("a", 2);
  EXPECT_EQ(look(asked), State::LeftOut);
}

TEST_F(Mail, SequencesGoRound) {
  Letter asked = receipt("a");
  for (int i = 0; i < 0x10000; ++i) {
    ask(asked);
    letters_.close(1, asked);
  }
  EXPECT_EQ(asked.sequence, 0);
  arrive("a", 1);
  ask(asked);
  EXPECT_EQ(look(asked), State::Next);
}

TEST_F(Mail, OneThatItsSenderEndedEarlySaysWhy) {
  Letter asked = receipt("b");
  ask(asked);
  arrive("a", 1, 2);
  transport_.abort_message(1, "it timed out", Lane::Mail);
  EXPECT_EQ(look(asked), State::NotHere);
  Letter ended = receipt("a");
  ask(ended);
  const auto found = letters_.look_for(transport_, 1, ended);
  ASSERT_EQ(found.state, State::Kept);
  EXPECT_EQ(found.kept->abort_reason, "it timed out");
}

}  // namespace
}  // namespace bluefog::testing
