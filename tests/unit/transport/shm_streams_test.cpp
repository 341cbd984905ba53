// The streams of control messages and of data between ranks of a host, and what a rank's status
// shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"
#include "bluefog_cpp/transport/shm/call_status.hpp"
#include "bluefog_cpp/transport/shm/control_streams.hpp"
#include "bluefog_cpp/transport/shm/host_group.hpp"
#include "bluefog_cpp/transport/shm/incoming_stream.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::shm {
namespace {

using ::testing::HasSubstr;

/// The groups of two ranks of one host.
class ShmStreams : public ::testing::Test {
 protected:
  ShmStreams() {
    const auto bootstraps = make_thread_bootstraps(2);
    std::array<std::jthread, 2> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads[rank] = std::jthread([&, rank] {
        groups_[rank] = form_group(*bootstraps[rank], {"host", "host"}, arenas_[rank],
                                   {.chunk_bytes = 4096, .slots = 4}, Deadline::never())
                            .group;
      });
    }
    for (std::jthread& thread : threads) {
      thread.join();
    }
  }

  const HostGroup& group(std::size_t rank) { return *groups_.at(rank); }
  // Writes a descriptor from rank 0 to rank 1, as the writer of the stream does.
  Entry& write(Stream& stream, std::uint64_t position, std::size_t bytes) {
    Entry& entry = stream.entries[position % kStreamEntries];
    entry.entry_kind = EntryKind::Head;
    entry.carriage = Carriage::Inline;
    entry.id = CallId::make(position + 1, 0).value;
    entry.message_bytes = bytes;
    entry.chunk_bytes = static_cast<std::uint32_t>(bytes);
    entry.name_hash = 0;
    return entry;
  }
  static void show(Entry& entry, std::uint64_t position) {
    entry.turn.store(turn_of(position, kStreamEntries), std::memory_order_release);
  }
  Stream& make_stream() { return *group(0).make<Stream>(group(0).link(0, 1).streams[0]); }

  std::array<std::shared_ptr<HostArena>, 2> arenas_;
  std::array<std::unique_ptr<HostGroup>, 2> groups_;
};

ControlMessage control_message(std::uint64_t call) {
  return {.kind = ControlMessage::Kind::Refusal, .call = call, .text = std::to_string(call)};
}

TEST_F(ShmStreams, ControlMessagesWaitForRoomAndKeepTheirOrder) {
  ControlStreams from(group(0));
  ControlStreams to(group(1));
  EXPECT_FALSE(to.poll());
  const std::uint64_t count = 2 * kControlEntries + 1;
  for (std::uint64_t call = 1; call <= count; ++call) {
    from.send(1, control_message(call));
  }
  EXPECT_TRUE(from.has_waiting(1));
  EXPECT_FALSE(from.has_waiting(0));
  EXPECT_FALSE(from.send_waiting()) << "nobody has read any";
  for (std::uint64_t call = 1; call <= count; ++call) {
    auto taken = to.poll();
    if (!taken) {
      EXPECT_TRUE(from.send_waiting());
      taken = to.poll();
    }
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->first, 0U);
    EXPECT_EQ(taken->second.call, call);
    EXPECT_EQ(taken->second.text, std::to_string(call));
  }
  EXPECT_FALSE(to.poll());
  EXPECT_FALSE(from.has_waiting());
}

TEST_F(ShmStreams, ControlMessagesToARankThatIsGoneAreDropped) {
  ControlStreams from(group(0));
  for (std::uint64_t call = 1; call <= kControlEntries + 3; ++call) {
    from.send(1, control_message(call));
  }
  EXPECT_TRUE(from.has_waiting());
  from.forget(1);
  EXPECT_FALSE(from.has_waiting());
  from.send(1, control_message(100));
  EXPECT_FALSE(from.has_waiting());
}

TEST_F(ShmStreams, ControlMessagesThatWaitHaveALimit) {
  ControlStreams from(group(0));
  ControlStreams to(group(1));
  const std::uint64_t most = kControlEntries + Transport::kMostWaitingControls;
  for (std::uint64_t call = 1; call <= most + 2; ++call) {
    from.send(1, control_message(call));
  }
  std::uint64_t last = 0;
  do {
    while (const auto taken = to.poll()) {
      last = taken->second.call;
    }
  } while (from.send_waiting());
  EXPECT_EQ(last, most);
}

TEST_F(ShmStreams, AMessageIsReadWhereItLies) {
  IncomingStream in(group(1), 0, Lane::Ordinary);
  EXPECT_EQ(in.arrived(), nullptr) << "the writer has not made the stream";
  Stream& stream = make_stream();
  EXPECT_EQ(in.arrived(), nullptr);
  Entry& entry = write(stream, 0, 8);
  std::memset(entry.payload.data(), 7, 8);
  show(entry, 0);
  const MessageHeader* const header = in.arrived();
  ASSERT_NE(header, nullptr);
  EXPECT_EQ(header->id.call(), 1U);
  EXPECT_EQ(header->bytes, 8U);
  EXPECT_EQ(in.readable().size(), 8U);
  EXPECT_EQ(in.readable().front(), std::byte{7});
  in.consume(8);
  EXPECT_TRUE(in.at_end());
  in.finish();
  EXPECT_EQ(stream.consumed.load(), 1U);
  EXPECT_EQ(in.arrived(), nullptr);
}

TEST_F(ShmStreams, AnAbortedMessageSaysWhy) {
  IncomingStream in(group(1), 0, Lane::Ordinary);
  Stream& stream = make_stream();
  Entry& head = write(stream, 0, 4096);
  head.chunk_bytes = 0;
  show(head, 0);
  ASSERT_NE(in.arrived(), nullptr);
  EXPECT_FALSE(in.aborted());
  Entry& abort = stream.entries[1];
  abort.entry_kind = EntryKind::Abort;
  std::strcpy(abort.text.data(), "changed its mind");
  show(abort, 1);
  in.consume(0);
  EXPECT_TRUE(in.readable().empty());
  EXPECT_EQ(in.aborted(), "changed its mind");
  in.finish();
  EXPECT_FALSE(in.aborted());
}

TEST_F(ShmStreams, AChunkThatIsLongerThanItsMessageIsRefused) {
  IncomingStream in(group(1), 0, Lane::Ordinary);
  Stream& stream = make_stream();
  Entry& entry = write(stream, 0, 8);
  entry.chunk_bytes = 16;
  show(entry, 0);
  try {
    (void)in.arrived();
    FAIL() << "a chunk of 16 bytes of a message of 8 was taken";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 announced a chunk of 16 bytes"));
    EXPECT_THAT(error.what(), HasSubstr("where 8 bytes were missing"));
  }
}

TEST_F(ShmStreams, AStatusShowsCallsAndWaits) {
  Status shared{};
  CallStatus status(shared);
  EXPECT_EQ(status.last_seen(), "it has made no call yet");
  status.note_call(CallId::make(41, 0), OpKind::Broadcast);
  status.note_end(40);
  status.note_wait({.call = 41, .rank = 65534});
  EXPECT_THAT(status.last_seen(), HasSubstr("last seen in call 41"));
  auto standing = status.standing();
  EXPECT_EQ(standing.begun.call, 41U);
  EXPECT_EQ(standing.begun.kind, OpKind::Broadcast);
  EXPECT_EQ(standing.first_under_way, 40U);
  EXPECT_EQ(standing.wait.call, 41U);
  EXPECT_EQ(standing.wait.rank, 65534);
  status.note_wait({.call = 41, .rank = 65535});  // does not fit into the integer
  standing = status.standing();
  EXPECT_EQ(standing.wait.call, 0U);
  EXPECT_EQ(standing.wait.rank, -1);
  EXPECT_FALSE(status.has_left());
  status.leave();
  EXPECT_TRUE(status.has_left());
}

}  // namespace
}  // namespace bluefog::shm
