#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/network.hpp"
#include "bluefog_cpp/transport/transport.hpp"
#include "tests/support/transport_messages.hpp"

namespace bluefog {
namespace {

using testing::Bytes;
using testing::departure_of;
using ::testing::HasSubstr;
using testing::pattern;

constexpr std::size_t kChunk = 32 << 10;
constexpr int kDepth = 4;

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

Settings small_settings() {
  Settings settings;
  settings.mpi_chunk_bytes = kChunk;
  settings.mpi_depth = kDepth;
  return settings;
}

class MpiTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GE(bootstrap_->size(), 2);
    transport_ = make_network(*bootstrap_, small_settings(), soon());
    ASSERT_NE(transport_, nullptr);
  }

  [[nodiscard]] int rank() const { return bootstrap_->rank(); }
  [[nodiscard]] int size() const { return bootstrap_->size(); }
  [[nodiscard]] int next() const { return (rank() + 1) % size(); }
  [[nodiscard]] int previous() const { return (rank() + size() - 1) % size(); }

  // Drives the transport until `done`; a watchdog names what was waited for.
  void until(const std::string& what, const std::function<bool()>& done) {
    const Deadline deadline = soon();
    while (!done()) {
      if (deadline.expired()) {
        throw TimeoutError("rank " + std::to_string(rank()) + ": waited for " + what);
      }
      transport_->progress();
      std::this_thread::yield();
    }
  }

  bool read_some(int source, Lane lane, Bytes& bytes) {
    return testing::read_some(*transport_, source, lane, bytes);
  }

  Bytes receive(int source, Lane lane) {
    Bytes bytes;
    until("a message of rank " + std::to_string(source),
          [&] { return read_some(source, lane, bytes); });
    transport_->finish(source, lane);
    return bytes;
  }

  void send(const Bytes& bytes, std::uint64_t call, const std::vector<WeightedRank>& readers,
            Lane lane) {
    Departure departure = departure_of(bytes, call, readers, lane);
    until("room", [&] {
      transport_->publish(departure);
      return departure.complete();
    });
  }

  std::shared_ptr<Bootstrap> bootstrap_ = make_default_bootstrap(Settings{}, soon());
  std::unique_ptr<Transport> transport_;
};

TEST_F(MpiTransportTest, NamesAndRoutes) {
  EXPECT_EQ(transport_->name(), "mpi");
  EXPECT_TRUE(transport_->needs_polling());
  EXPECT_FALSE(transport_->reaches(rank()));
  EXPECT_TRUE(transport_->reaches(next()));
}

TEST_F(MpiTransportTest, MessagesOfEverySizeGoAroundTheRing) {
  std::uint64_t call = 0;
  for (const Lane lane : {Lane::Ordinary, Lane::Deep}) {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{64}, kChunk - 1, kChunk,
          kChunk + 1, 4 * kChunk, kChunk * kDepth * 5 + 13, std::size_t{3} << 20}) {
      ++call;
      const Bytes mine = pattern(bytes, rank(), call);
      const std::vector<WeightedRank> readers{{next(), 0.5}};
      Departure departure = departure_of(mine, call, readers, lane);
      Bytes theirs;
      bool received = false;
      until("both directions", [&] {
        if (!departure.complete()) {
          transport_->publish(departure);
        }
        received = received || read_some(previous(), lane, theirs);
        return departure.complete() && received;
      });
      const MessageHeader& header = *transport_->arrived(previous(), lane);
      EXPECT_EQ(header.id.call(), call);
      EXPECT_EQ(header.bytes, bytes);
      EXPECT_EQ(header.weight, 0.5);
      EXPECT_STREQ(header.envelope.name.data(), "test");
      transport_->finish(previous(), lane);
      EXPECT_EQ(theirs, pattern(bytes, previous(), call));
    }
  }
}

TEST_F(MpiTransportTest, PublishedBytesMayBeOverwritten) {
  Bytes mine = pattern(3 * kChunk, rank(), 1);
  const std::vector<WeightedRank> readers{{next(), 1.0}};
  Departure departure = departure_of(mine, 1, readers, Lane::Ordinary);
  until("room", [&] {
    const std::size_t before = departure.published;
    transport_->publish(departure);
    std::fill(mine.begin() + before, mine.begin() + departure.published, std::byte{0xee});
    return departure.complete();
  });
  EXPECT_EQ(receive(previous(), Lane::Ordinary), pattern(3 * kChunk, previous(), 1));
}

TEST_F(MpiTransportTest, EachReaderSeesItsOwnWeight) {
  constexpr std::size_t kBytes = kChunk + 100;
  if (rank() == 0) {
    std::vector<WeightedRank> readers;
    for (int reader = 1; reader < size(); ++reader) {
      readers.push_back({reader, reader < 3 ? 0.25 : 2.0});
    }
    send(pattern(kBytes, 0, 7), 7, readers, Lane::Ordinary);
  } else {
    until("a header", [&] { return transport_->arrived(0, Lane::Ordinary) != nullptr; });
    EXPECT_EQ(transport_->arrived(0, Lane::Ordinary)->weight, rank() < 3 ? 0.25 : 2.0);
    EXPECT_EQ(receive(0, Lane::Ordinary), pattern(kBytes, 0, 7));
  }
  until("the sends to end", [&] { return !transport_->has_pending(); });
}

TEST_F(MpiTransportTest, LanesDoNotWaitForEachOther) {
  const Bytes large = pattern(kChunk * kDepth * 4, rank(), 1);
  const Bytes small = pattern(8, rank(), 2);
  const std::vector<WeightedRank> readers{{next(), 1.0}};
  // The deep lane takes a message as a whole even if nobody reads it.
  send(large, 1, readers, Lane::Deep);
  send(small, 2, readers, Lane::Ordinary);
  EXPECT_EQ(receive(previous(), Lane::Ordinary), pattern(8, previous(), 2));
  EXPECT_EQ(receive(previous(), Lane::Deep), pattern(large.size(), previous(), 1));
}

// A long frame of one lane comes after a short one that was sent later on the other, where its
// sender has to help.
TEST_F(MpiTransportTest, AMessageSaysWhatWasSentBeforeItOnTheOtherLane) {
  const std::vector<WeightedRank> one{{next(), 1.0}};
  std::vector<WeightedRank> all;
  for (int reader = 0; reader < size(); ++reader) {
    if (reader != rank()) {
      all.push_back({reader, 1.0});
    }
  }
  send(pattern(3 * kChunk, rank(), 1), 1, one, Lane::Deep);
  send(pattern(100, rank(), 2), 2, all, Lane::Ordinary);
  send(pattern(100, rank(), 3), 3, one, Lane::Deep);
  send(pattern(100, rank(), 4), 4, one, Lane::Ordinary);
  until("the message behind the first deep one",
        [&] { return transport_->arrived(previous(), Lane::Ordinary) != nullptr; });
  EXPECT_FALSE(transport_->has_all_before(previous(), Lane::Ordinary)) << "nobody has asked for it";
  for (const std::uint64_t ordinary : {2, 4}) {
    until("all before", [&] {
      (void)transport_->arrived(previous(), Lane::Deep);
      return transport_->arrived(previous(), Lane::Ordinary) != nullptr &&
             transport_->has_all_before(previous(), Lane::Ordinary);
    });
    EXPECT_EQ(transport_->arrived(previous(), Lane::Ordinary)->id.call(), ordinary);
    ASSERT_NE(transport_->arrived(previous(), Lane::Deep), nullptr);
    EXPECT_EQ(transport_->arrived(previous(), Lane::Deep)->id.call(), ordinary - 1);
    EXPECT_TRUE(transport_->has_all_before(previous(), Lane::Deep));
    (void)receive(previous(), Lane::Deep);
    (void)receive(previous(), Lane::Ordinary);
  }
  for (const WeightedRank& other : all) {
    if (other.rank != previous()) {
      until("the message to all",
            [&] { return transport_->arrived(other.rank, Lane::Ordinary) != nullptr; });
      EXPECT_TRUE(transport_->has_all_before(other.rank, Lane::Ordinary));
      (void)receive(other.rank, Lane::Ordinary);
    }
  }
}

TEST_F(MpiTransportTest, ADeepMessageComesAsAWholeBeforeItsReaderLooks) {
  const std::vector<WeightedRank> readers{{next(), 1.0}};
  for (std::uint64_t call = 1; call <= 3; ++call) {
    const Bytes large = pattern(kChunk * kDepth * 4 + call, rank(), call);
    EXPECT_FALSE(transport_->has_come(previous(), Lane::Deep, CallId::make(call, 0)));
    send(large, call, readers, Lane::Deep);
    until("the whole message",
          [&] { return transport_->has_come(previous(), Lane::Deep, CallId::make(call, 0)); });
    until("the sends to end", [&] { return !transport_->has_pending(); });
    bootstrap_->barrier(soon());  // nobody has read anything yet
    EXPECT_EQ(receive(previous(), Lane::Deep), pattern(large.size(), previous(), call));
  }
}

TEST_F(MpiTransportTest, AWriterCannotRunAheadWithoutBounds) {
  constexpr int kMessages = 1000;
  if (rank() == 0) {
    const std::vector<WeightedRank> readers{{1, 1.0}};
    int sent = 0;
    const Bytes data = pattern(4, 0, 0);
    for (int idle = 0; sent < kMessages && idle < 10000; ++idle) {
      Departure departure = departure_of(data, sent + 1, readers, Lane::Ordinary);
      if (transport_->publish(departure)) {
        ++sent;
        idle = 0;
      }
      transport_->progress();
      std::this_thread::yield();
    }
    EXPECT_LT(sent, kMessages);
    bootstrap_->barrier(soon());
    for (; sent < kMessages; ++sent) {
      send(data, sent + 1, readers, Lane::Ordinary);
    }
    until("the sends to end", [&] { return !transport_->has_pending(); });
  } else {
    bootstrap_->barrier(soon());
    for (std::uint64_t call = 1; rank() == 1 && call <= kMessages; ++call) {
      until("a message", [&] { return transport_->arrived(0, Lane::Ordinary) != nullptr; });
      EXPECT_EQ(transport_->arrived(0, Lane::Ordinary)->id.call(), call);
      EXPECT_EQ(receive(0, Lane::Ordinary), pattern(4, 0, 0));
    }
  }
}

TEST_F(MpiTransportTest, AbortEndsAMessageEarlyAndTheNextOneIsWhole) {
  if (rank() == 0) {
    const Bytes bytes = pattern(4 * kChunk, 0, 1);
    const std::vector<WeightedRank> readers{{1, 1.0}};
    Departure departure = departure_of(bytes, 1, readers, Lane::Ordinary);
    until("room", [&] { return transport_->publish(departure); });
    ASSERT_FALSE(departure.complete());
    until("room for the abort", [&] { return transport_->abort(departure, "changed its mind"); });
    EXPECT_TRUE(departure.complete());
    send(pattern(10, 0, 2), 2, readers, Lane::Ordinary);
    until("the sends to end", [&] { return !transport_->has_pending(); });
  } else if (rank() == 1) {
    until("the abort", [&] {
      Bytes some;
      read_some(0, Lane::Ordinary, some);
      return transport_->arrived(0, Lane::Ordinary) != nullptr &&
             transport_->aborted(0, Lane::Ordinary).has_value();
    });
    EXPECT_EQ(transport_->aborted(0, Lane::Ordinary), "changed its mind");
    EXPECT_FALSE(transport_->at_end(0, Lane::Ordinary));
    transport_->finish(0, Lane::Ordinary);
    EXPECT_EQ(receive(0, Lane::Ordinary), pattern(10, 0, 2));
  }
}

TEST_F(MpiTransportTest, ADepartureThatWasNotAnnouncedIsNotMissed) {
  const Bytes bytes = pattern(4, rank(), 1);
  const std::vector<WeightedRank> readers{{next(), 1.0}};
  Departure departure = departure_of(bytes, 1, readers, Lane::Ordinary);
  EXPECT_TRUE(transport_->abort(departure, "never sent"));
  EXPECT_TRUE(departure.complete());
  send(pattern(5, rank(), 2), 2, readers, Lane::Ordinary);
  EXPECT_EQ(receive(previous(), Lane::Ordinary), pattern(5, previous(), 2));
}

TEST_F(MpiTransportTest, ControlMessagesReachAnyRank) {
  const std::string text = "refused by rank " + std::to_string(rank());
  for (int to = 0; to < size(); ++to) {
    if (to != rank()) {
      transport_->send_control(to, {.kind = ControlMessage::Kind::Refusal,
                                    .call = static_cast<std::uint64_t>(to),
                                    .text = to == next() ? std::string(5000, 'x') : text});
    }
  }
  for (int heard = 1; heard < size(); ++heard) {
    std::optional<std::pair<int, ControlMessage>> message;
    until("a control message", [&] { return (message = transport_->poll_control()).has_value(); });
    EXPECT_EQ(message->second.call, rank());
    EXPECT_EQ(message->second.kind, ControlMessage::Kind::Refusal);
    if (message->first == previous()) {
      EXPECT_THAT(message->second.text, ::testing::MatchesRegex("x+"));  // cut to fit
    } else {
      EXPECT_EQ(message->second.text, "refused by rank " + std::to_string(message->first));
    }
  }
}

TEST_F(MpiTransportTest, ARankThatLeavesIsKnownOnceItsDataHaveBeenRead) {
  const std::size_t bytes = 2 * kChunk;
  if (rank() == 0) {
    std::vector<WeightedRank> readers;
    for (int reader = 1; reader < size(); ++reader) {
      readers.push_back({reader, 1.0});
    }
    send(pattern(bytes, 0, 3), 3, readers, Lane::Ordinary);
    transport_.reset();
  } else {
    EXPECT_EQ(receive(0, Lane::Ordinary), pattern(bytes, 0, 3));
    std::optional<std::string> cause_of_death;
    until("the goodbye", [&] {
      EXPECT_FALSE(transport_->poll_control().has_value());
      return (cause_of_death = transport_->cause_of_death(0)).has_value();
    });
    EXPECT_THAT(*cause_of_death, HasSubstr("has closed its context"));
    EXPECT_THAT(*cause_of_death, HasSubstr("call 3, neighbor_allreduce"));
    // A message to the gone rank goes nowhere, and nobody waits for it.
    send(pattern(bytes, rank(), 4), 4, {{0, 1.0}}, Lane::Ordinary);
    EXPECT_FALSE(transport_->has_pending());
  }
}

TEST_F(MpiTransportTest, LeavingWithUnreadDataDoesNotHang) {
  const std::vector<WeightedRank> readers{{next(), 1.0}};
  send(pattern(kChunk * kDepth * 3, rank(), 1), 1, readers, Lane::Deep);
  transport_.reset();
  bootstrap_->barrier(soon());
}

TEST_F(MpiTransportTest, TransportsComeAndGo) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    transport_ = make_network(*bootstrap_, small_settings(), soon());
    const std::vector<WeightedRank> readers{{next(), 1.0}};
    send(pattern(100, rank(), round), round, readers, Lane::Ordinary);
    EXPECT_EQ(receive(previous(), Lane::Ordinary), pattern(100, previous(), round));
  }
}

TEST_F(MpiTransportTest, DifferentSizesAreRefusedOnEveryRank) {
  Settings settings = small_settings();
  settings.mpi_chunk_bytes = rank() == 0 ? 4096 : 8192;
  try {
    (void)make_network(*bootstrap_, settings, soon());
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("BLUEFOG_MPI_CHUNK_BYTES"));
  }
  bootstrap_->barrier(soon());
}

}  // namespace
}  // namespace bluefog
