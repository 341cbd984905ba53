// The connections of ranks over pairs of sockets: who calls whom, how a rank goes, and which
// messages wait for their readers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/tcp/connection_table.hpp"
#include "bluefog_cpp/transport/tcp/publisher.hpp"
#include "bluefog_cpp/transport/tcp/receiver.hpp"
#include "tests/support/transport_messages.hpp"

namespace bluefog::tcp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using Bytes = std::vector<std::byte>;
using testing::pattern;

constexpr std::size_t kOrdinary = static_cast<std::size_t>(Lane::Ordinary);
constexpr std::size_t kDeep = static_cast<std::size_t>(Lane::Deep);

struct Rank {
  Rank(int rank, std::size_t size)
      : table(rank, size, {},
              [this](int peer, std::size_t channel) { calls.emplace_back(peer, channel); }) {}

  std::vector<std::pair<int, std::size_t>> calls;
  ConnectionTable table;
  Publisher publisher{table};
  Receiver receiver{table, publisher};
};

class TcpConnections : public ::testing::Test {
 protected:
  TcpConnections() {
    for (int rank = 0; rank < 3; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, 3));
    }
  }

  Rank& rank(int which) { return *ranks_[static_cast<std::size_t>(which)]; }
  Peer& peer(int of, int which) { return rank(of).table.peer(which); }

  // Answers all calls of `from` with a pair of sockets.
  void connect(int from) {
    for (const auto& [to, channel] : std::exchange(rank(from).calls, {})) {
      ASSERT_EQ(rank(to).table.on_call(from, channel), Answer::Verdict::Welcome);
      std::array<int, 2> ends{};
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
      ASSERT_TRUE(rank(from).table.open(to, channel, shm::UniqueFd(ends[0])));
      ASSERT_TRUE(rank(to).table.open(from, channel, shm::UniqueFd(ends[1])));
    }
  }

  void pump() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& one : ranks_) {
        moved |= one->receiver.pump();
      }
    }
  }

  // The other side of a connection of `of`, as an end of its process has it.
  void end(int of, int other, std::size_t channel) {
    Connection* const connection = rank(of).table.find(other, channel);
    ASSERT_NE(connection, nullptr);
    rank(of).table.end(*connection, 0);
  }

  void say(int from, int to, const FrameFront& front, std::string_view text = {}) {
    Connection& control = rank(from).table.use(to, kControlChannel);
    control.out.add(front, text);
    rank(from).table.note_sent(control);
  }

  Departure departure(std::uint64_t call, const Bytes& data, std::string_view name) {
    Departure result;
    result.header.id = CallId::make(call, 0);
    result.header.bytes = data.size();
    result.header.envelope = Envelope::make(OpKind::Broadcast, Dtype::UInt8,
                                            static_cast<std::int64_t>(data.size()), name);
    result.data = data.data();
    result.readers = readers_;
    result.lane = Lane::Deep;
    result.first_under_way = call;
    return result;
  }

  Bytes take(int reader, int writer) {
    IncomingStream& in = rank(reader).table.find(writer, kDeep)->in;
    Bytes bytes;
    while (in.arrived() != nullptr && !in.at_end() && !in.readable().empty()) {
      const auto here = in.readable();
      bytes.insert(bytes.end(), here.begin(), here.end());
      in.consume(here.size());
    }
    in.finish();
    return bytes;
  }

  std::vector<WeightedRank> readers_{{.rank = 1}, {.rank = 2}};
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(TcpConnections, CallsOnceForTheLaneAndTheControlFramesOfAPair) {
  rank(0).table.use(1, kOrdinary);
  EXPECT_THAT(rank(0).calls, ElementsAre(Pair(1, kControlChannel), Pair(1, kOrdinary)));
  rank(0).table.use(1, kOrdinary);
  EXPECT_EQ(rank(0).calls.size(), 2U);
  rank(0).table.use(1, kDeep);
  EXPECT_THAT(rank(0).calls,
              ElementsAre(Pair(1, kControlChannel), Pair(1, kOrdinary), Pair(1, kDeep)));
}

TEST_F(TcpConnections, KeepTheLowerRanksCallWhereBothHaveCalled) {
  rank(0).table.use(1, kOrdinary);
  rank(1).table.use(0, kOrdinary);
  EXPECT_EQ(rank(0).table.on_call(1, kOrdinary), Answer::Verdict::Crossed);
  EXPECT_EQ(rank(1).table.on_call(0, kOrdinary), Answer::Verdict::Welcome);
  connect(0);
  EXPECT_EQ(rank(1).table.on_call(0, kOrdinary), Answer::Verdict::Crossed);
}

TEST_F(TcpConnections, AreRefusedToARankThatHasFailedAndByOneThatLeaves) {
  rank(0).table.break_off(1, "of no use");
  EXPECT_EQ(rank(0).table.on_call(1, kOrdinary), std::nullopt);
  rank(0).table.use(1, kOrdinary);
  EXPECT_THAT(rank(0).calls, IsEmpty());
  rank(2).table.set_leaving();
  EXPECT_EQ(rank(2).table.on_call(0, kOrdinary), std::nullopt);
}

TEST_F(TcpConnections, OfControlFramesThatEndWithoutAGoodbyeAreTheEndOfAProcess) {
  rank(0).table.use(1, kOrdinary);
  connect(0);
  end(1, 0, kControlChannel);
  pump();
  EXPECT_TRUE(peer(0, 1).has_failed());
  EXPECT_THAT(peer(0, 1).cause_of_death().value_or(""),
              HasSubstr("its process has ended without closing its context (no message of it"));
}

TEST_F(TcpConnections, ThatEndAfterAGoodbyeAreNoFailure) {
  rank(0).table.use(1, kOrdinary);
  connect(0);
  end(1, 0, kOrdinary);  // the lane's end comes first, the goodbye decides
  pump();
  say(1, 0, FrameFront::numbered(FrameKind::Goodbye, 0));
  end(1, 0, kControlChannel);
  pump();
  EXPECT_TRUE(peer(0, 1).has_left());
  EXPECT_FALSE(peer(0, 1).judge());
  peer(0, 1).fail("too late");
  EXPECT_FALSE(peer(0, 1).has_failed());
}

TEST_F(TcpConnections, OfALaneThatEndsAloneFailAfterAGrace) {
  rank(0).table.use(1, kOrdinary);
  connect(0);
  end(1, 0, kOrdinary);
  pump();
  while (!peer(0, 1).judge()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_THAT(peer(0, 1).cause_of_death().value_or(""),
              HasSubstr("a connection to it broke without a goodbye: it ended"));
}

TEST_F(TcpConnections, BreakOffWhereAControlFrameIsNone) {
  rank(0).table.use(1, kOrdinary);
  connect(0);
  say(1, 0, FrameFront::part(FrameKind::Piece, 8), "a piece ");
  pump();
  EXPECT_TRUE(peer(0, 1).has_failed());
  EXPECT_EQ(rank(0).table.find(1, kOrdinary)->state, Connection::State::Over);
}

TEST_F(TcpConnections, BringControlMessagesInTheirOrder) {
  for (const std::uint64_t call : {7U, 5U}) {
    say(1, 0, FrameFront::numbered(FrameKind::Control, call));
  }
  connect(1);
  pump();
  for (const std::uint64_t call : {7U, 5U}) {
    const auto control = rank(0).receiver.next_control();
    ASSERT_TRUE(control);
    EXPECT_EQ(control->first, 1);
    EXPECT_EQ(control->second.call, call);
  }
  EXPECT_FALSE(rank(0).receiver.next_control());
}

TEST_F(TcpConnections, HoldADeepMessageUntilTheLastOfItsNameIsTaken) {
  const Bytes data = pattern(64);
  Departure first = departure(1, data, "a");
  EXPECT_TRUE(rank(0).publisher.publish(first));
  connect(0);
  Departure other = departure(2, data, "b");
  EXPECT_TRUE(rank(0).publisher.publish(other));
  Departure second = departure(3, data, "a");
  EXPECT_FALSE(rank(0).publisher.publish(second));
  rank(0).publisher.note_receipt(1, 1);
  EXPECT_FALSE(rank(0).publisher.publish(second)) << "rank 2 has not taken it";
  say(2, 0, FrameFront::numbered(FrameKind::Receipt, 1));
  pump();
  EXPECT_TRUE(rank(0).publisher.publish(second));
  Departure third = departure(4, data, "a");
  third.first_under_way = 3;  // the second one's call has not ended here
  EXPECT_TRUE(rank(0).publisher.publish(third));
}

TEST_F(TcpConnections, WaitForNoReaderThatIsGone) {
  const Bytes data = pattern(64);
  Departure first = departure(1, data, "a");
  EXPECT_TRUE(rank(0).publisher.publish(first));
  rank(0).publisher.note_receipt(1, 1);
  rank(0).table.break_off(2, "of no use");
  Departure second = departure(2, data, "a");
  EXPECT_TRUE(rank(0).publisher.publish(second));
}

TEST_F(TcpConnections, CarryACopyOfADeepMessageThatFindsNoRoom) {
  Bytes data = pattern(std::size_t{3} << 20U);
  const Bytes expected = data;
  Departure message = departure(1, data, "a");
  EXPECT_TRUE(rank(0).publisher.publish(message));  // the connections are not there yet
  EXPECT_TRUE(message.complete());
  data.assign(data.size(), std::byte{0});
  EXPECT_TRUE(rank(0).table.has_background());
  connect(0);
  pump();
  EXPECT_EQ(take(1, 0), expected);
  EXPECT_EQ(take(2, 0), expected);
  EXPECT_FALSE(rank(0).table.any([](const Connection& one) { return one.out.has_waiting(); }));
}

}  // namespace
}  // namespace bluefog::tcp
