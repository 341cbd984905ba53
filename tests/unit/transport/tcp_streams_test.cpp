// A connection of the TCP transport: messages cut anywhere, and what is no frame.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/tcp/streams/control_reader.hpp"
#include "bluefog_cpp/transport/tcp/streams/incoming_stream.hpp"
#include "bluefog_cpp/transport/tcp/streams/outgoing_stream.hpp"
#include "tests/support/transport_messages.hpp"

namespace bluefog::tcp {
namespace {

using Bytes = std::vector<std::byte>;
using testing::pattern;

MessageHeader header_of(std::uint64_t call, std::size_t bytes) {
  MessageHeader header;
  header.id = CallId::make(call, 0);
  header.bytes = bytes;
  header.weight = 0.25;
  header.envelope =
      Envelope::make(OpKind::Broadcast, Dtype::UInt8, static_cast<std::int64_t>(bytes), "a name");
  return header;
}

/// A pair of sockets with little room, and a stream on each.
class TcpStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    from_ = shm::UniqueFd(ends[0]);
    to_ = shm::UniqueFd(ends[1]);
    out_.set_socket(from_.get());
  }

  // Moves what the socket holds, as the transport does; `most` bytes at a time.
  void move(std::size_t most) {
    Bytes scratch(most);
    const auto room = in_.room();
    if (!room.empty()) {
      const ssize_t got = ::recv(to_.get(), room.data(), std::min(most, room.size()), MSG_DONTWAIT);
      in_.note_received(got > 0 ? static_cast<std::size_t>(got) : 0);
    } else if (const ssize_t got = ::recv(to_.get(), scratch.data(), most, MSG_DONTWAIT); got > 0) {
      in_.feed({scratch.data(), static_cast<std::size_t>(got)});
    }
    out_.note_room();
    out_.flush();
  }

  Bytes take() {
    Bytes bytes;
    while (!in_.at_end()) {
      const auto here = in_.readable();
      if (here.empty()) {
        break;
      }
      used_ += here.size();
      EXPECT_TRUE(used_ % 64 == 0 || used_ == in_.arrived()->bytes);
      bytes.insert(bytes.end(), here.begin(), here.end());
      in_.consume(here.size());
    }
    return bytes;
  }

  std::size_t used_ = 0;
  BlockPool pool_;
  OutgoingStream out_;
  IncomingStream in_{pool_, 1};
  shm::UniqueFd from_;
  shm::UniqueFd to_;
};

TEST_F(TcpStreams, MessagesOfEverySizeComeAsTheyWere) {
  for (const std::size_t cut : {std::size_t{1}, std::size_t{777}, std::size_t{1} << 16U}) {
    std::uint64_t call = 0;
    for (const std::size_t size : {0, 1, 63, 64, 5000, 70'000, cut == 1 ? 100'000 : 3'000'001}) {
      const Bytes bytes = pattern(size);
      ++call;
      out_.begin(header_of(call, size), 3 * call);
      Bytes theirs;
      while (in_.arrived() == nullptr || !in_.at_end()) {
        out_.send(bytes, 100'000);
        move(cut);
        const Bytes some = take();
        theirs.insert(theirs.end(), some.begin(), some.end());
      }
      EXPECT_EQ(in_.arrived()->id.call(), call);
      EXPECT_EQ(in_.on_other_lane(), 3 * call);
      EXPECT_EQ(in_.come(), out_.begun());
      EXPECT_EQ(in_.arrived()->weight, 0.25);
      EXPECT_EQ(in_.arrived()->envelope.name, "a name");
      EXPECT_FALSE(out_.is_under_way(CallId::make(call, 0)));
      EXPECT_EQ(theirs, bytes);
      in_.finish();
      used_ = 0;
      EXPECT_EQ(in_.held_bytes(), 0U);
    }
  }
}

TEST_F(TcpStreams, AnAbortedMessageEndsAndTheNextOneIsWhole) {
  const Bytes large = pattern(4'000'000);
  out_.begin(header_of(1, large.size()));
  out_.send(large, large.size());
  ASSERT_TRUE(out_.is_under_way(CallId::make(1, 0)));
  out_.abort("changed its mind");
  const Bytes small = pattern(100);
  while (!in_.aborted()) {
    move(1 << 16);
    take();
  }
  EXPECT_EQ(in_.aborted(), "changed its mind");
  in_.finish();
  used_ = 0;
  EXPECT_EQ(in_.held_bytes(), 0U);
  out_.begin(header_of(2, small.size()));
  out_.send(small, small.size());
  while (in_.arrived() == nullptr || in_.readable().size() < small.size()) {
    move(1 << 16);
  }
  EXPECT_EQ(take(), small);
}

TEST_F(TcpStreams, StagedBytesFollowThoseThatTheSocketTook) {
  const Bytes bytes = pattern(2'000'000);
  out_.begin(header_of(1, bytes.size()));
  out_.send(bytes, bytes.size());
  while (out_.position() < bytes.size()) {
    auto block = std::make_shared<BlockPool::Block>(pool_.take(bytes.size() - out_.position()));
    const std::size_t some = std::min(block->bytes(), bytes.size() - out_.position());
    std::copy_n(bytes.data() + out_.position(), some, block->data());
    out_.stage({block->data(), some}, block);
  }
  EXPECT_FALSE(out_.is_under_way(CallId::make(1, 0)));
  Bytes theirs;
  while (in_.arrived() == nullptr || !in_.at_end()) {
    move(1 << 16);
    const Bytes some = take();
    theirs.insert(theirs.end(), some.begin(), some.end());
  }
  EXPECT_EQ(theirs, bytes);
}

TEST_F(TcpStreams, WhatIsNoFrameIsRefused) {
  const Bytes nonsense(64, std::byte{0xee});
  EXPECT_THROW(in_.feed(nonsense), InternalError);
  IncomingStream piece_first(pool_, 1);
  EXPECT_THROW(piece_first.feed(FrameFront::part(FrameKind::Piece, 10).bytes()), InternalError);
  IncomingStream too_much(pool_, 1);
  too_much.feed(FrameFront::head(header_of(1, 100), 0).bytes());
  EXPECT_THROW(too_much.feed(FrameFront::part(FrameKind::Piece, 101).bytes()), InternalError);
  IncomingStream head_in_message(pool_, 1);
  head_in_message.feed(FrameFront::head(header_of(1, 100), 0).bytes());
  EXPECT_THROW(head_in_message.feed(FrameFront::head(header_of(2, 1), 0).bytes()), InternalError);
}

TEST(TcpControl, ComeInPiecesOfAnySize) {
  Bytes bytes;
  const auto add = [&](const FrameFront& front, std::string_view text = {}) {
    bytes.insert(bytes.end(), front.bytes().begin(), front.bytes().end());
    const auto more = std::as_bytes(std::span(text.data(), text.size()));
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  add(FrameFront::numbered(FrameKind::Control, 7, 5,
                           static_cast<std::uint8_t>(ControlMessage::Kind::Abandoned)),
      "hello");
  add(FrameFront::numbered(FrameKind::Receipt, 3));
  add(FrameFront::numbered(FrameKind::Goodbye, 0));
  for (const std::size_t cut : {1, 3, 1000}) {
    ControlReader reader(1);
    std::deque<ControlReader::Frame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += cut) {
      reader.feed(std::span(bytes).subspan(at, std::min(cut, bytes.size() - at)), frames);
    }
    ASSERT_EQ(frames.size(), 3U);
    EXPECT_EQ(frames[0].text, "hello");
    EXPECT_EQ(frames[0].number, 7U);
    EXPECT_EQ(frames[0].message_kind, ControlMessage::Kind::Abandoned);
    EXPECT_EQ(frames[1].number, 3U);
    EXPECT_EQ(frames[2].kind, FrameKind::Goodbye);
  }
}

TEST(TcpControl, AMessageThatIsTooLongIsRefused) {
  ControlReader reader(1);
  std::deque<ControlReader::Frame> frames;
  const auto front = FrameFront::numbered(FrameKind::Control, 1, ControlReader::kMostTextBytes + 1);
  EXPECT_THROW(reader.feed(front.bytes(), frames), InternalError);
}

}  // namespace
}  // namespace bluefog::tcp
