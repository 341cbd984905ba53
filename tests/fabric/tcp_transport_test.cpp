// The TCP transport between ranks that are threads: lanes, ends, sleepers, and settings that do not
// fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"
#include "bluefog_cpp/transport/doorbell.hpp"
#include "bluefog_cpp/transport/network.hpp"
#include "tests/support/transport_messages.hpp"

namespace bluefog {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::pattern;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

Settings tcp_settings() {
  Settings settings;
  settings.network = NetworkChoice::Tcp;
  settings.timeout = std::chrono::seconds(20);
  settings.tcp_interface = "127.0.0.1";
  return settings;
}

/// One of two ranks with its transport.
class Rank {
 public:
  Rank(std::shared_ptr<Bootstrap> own, const Settings& settings)
      : bootstrap(std::move(own)),
        other(1 - bootstrap->rank()),
        readers{{other, 1.0}},
        transport(make_network(*bootstrap, settings, soon())) {}

  void until(const std::string& what, const std::function<bool()>& done) const {
    const Deadline deadline = soon();
    while (!done()) {
      if (deadline.expired()) {
        throw TimeoutError("waited for " + what);
      }
      if (!transport->progress()) {
        std::this_thread::yield();
      }
    }
  }
  [[nodiscard]] Departure departure_of(const Bytes& bytes, std::uint64_t call, Lane lane) const {
    return testing::departure_of(bytes, call, readers, lane);
  }
  void send(const Bytes& bytes, std::uint64_t call, Lane lane) const {
    Departure departure = departure_of(bytes, call, lane);
    until("room", [&] {
      transport->publish(departure);
      return departure.complete();
    });
  }
  [[nodiscard]] bool read_some(Lane lane, Bytes& bytes) const {
    return testing::read_some(*transport, other, lane, bytes);
  }
  [[nodiscard]] Bytes receive(Lane lane) const {
    Bytes bytes;
    until("a message", [&] { return read_some(lane, bytes); });
    transport->finish(other, lane);
    return bytes;
  }
  void meet() const { bootstrap->barrier(soon()); }

  std::shared_ptr<Bootstrap> bootstrap;
  int other;
  std::vector<WeightedRank> readers;
  std::unique_ptr<Transport> transport;
};

void on_two(const Settings& settings, const std::function<void(Rank&)>& body) {
  std::vector<std::jthread> threads;
  for (auto& bootstrap : make_thread_bootstraps(2)) {
    threads.emplace_back([&settings, &body, own = std::move(bootstrap)]() mutable {
      try {
        Rank rank(std::move(own), settings);
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
}

TEST(TcpTransport, MessagesOfEverySizeGoBothWays) {
  on_two(tcp_settings(), [](Rank& rank) {
    EXPECT_EQ(rank.transport->name(), "tcp");
    EXPECT_FALSE(rank.transport->needs_polling());
    const int own = rank.bootstrap->rank();
    std::uint64_t call = 0;
    for (const Lane lane : {Lane::Ordinary, Lane::Deep, Lane::Pair}) {
      for (const std::size_t bytes : {0, 1, 4, 64, 4095, 65'537, 3'000'001}) {
        ++call;
        const Bytes mine = pattern(bytes, own, call);
        Departure departure = rank.departure_of(mine, call, lane);
        Bytes theirs;
        bool received = false;
        rank.until("both ways", [&] {
          if (!departure.complete()) {
            rank.transport->publish(departure);
          }
          received = received || rank.read_some(lane, theirs);
          return departure.complete() && received;
        });
        EXPECT_EQ(rank.transport->arrived(rank.other, lane)->id.call(), call);
        rank.transport->finish(rank.other, lane);
        EXPECT_EQ(theirs, pattern(bytes, rank.other, call));
      }
    }
  });
}

// Lanes are connections of their own, of which one may be made late or lose packets.
TEST(TcpTransport, AMessageSaysWhatWasSentBeforeItOnTheOtherLane) {
  const auto body = [](Rank& rank) {
    const int own = rank.bootstrap->rank();
    std::uint64_t call = 0;
    const auto send_next = [&](Lane lane) {
      ++call;
      rank.send(pattern(100, own, call), call, lane);
    };
    send_next(Lane::Ordinary);
    (void)rank.receive(Lane::Ordinary);  // its connection is there, and the deep lane's is not
    for (const Lane lane : {Lane::Deep, Lane::Ordinary, Lane::Deep, Lane::Deep, Lane::Ordinary}) {
      send_next(lane);
    }
    Transport& transport = *rank.transport;
    for (const std::uint64_t ordinary : {3, 6}) {
      rank.until("all before", [&] {
        return transport.arrived(rank.other, Lane::Ordinary) != nullptr &&
               transport.has_all_before(rank.other, Lane::Ordinary);
      });
      EXPECT_EQ(transport.arrived(rank.other, Lane::Ordinary)->id.call(), ordinary);
      for (std::uint64_t deep = ordinary == 3 ? 2 : 4; deep < ordinary; ++deep) {
        const MessageHeader* const header = transport.arrived(rank.other, Lane::Deep);
        ASSERT_NE(header, nullptr);
        EXPECT_EQ(header->id.call(), deep);
        EXPECT_TRUE(transport.has_all_before(rank.other, Lane::Deep));
        (void)rank.receive(Lane::Deep);
      }
      (void)rank.receive(Lane::Ordinary);
    }
    EXPECT_TRUE(transport.has_all_before(rank.other, Lane::Pair));
    rank.meet();
  };
  constexpr int kTimes = 10;  // the deep lane's connection is not always the later one
  for (int time = 0; time < kTimes; ++time) {
    on_two(tcp_settings(), body);
  }
}

// A deep message of 64 MiB that nobody takes holds up neither ordinary calls nor control messages.
TEST(TcpTransport, NoLaneWaitsForAnother) {
  Settings settings = tcp_settings();
  settings.tcp_socket_bytes = 64 << 10;
  on_two(settings, [](Rank& rank) {
    const int own = rank.bootstrap->rank();
    const Bytes large = pattern(std::size_t{64} << 20U, own, 1);
    rank.send(large, 1, Lane::Deep);
    for (std::uint64_t call = 2; call < 1002; ++call) {
      rank.send(pattern(100, own, call), call, Lane::Ordinary);
      ASSERT_EQ(rank.receive(Lane::Ordinary), pattern(100, rank.other, call));
    }
    rank.transport->send_control(rank.other, {.call = 5, .text = "a report"});
    std::optional<std::pair<int, ControlMessage>> control;
    rank.until("a report", [&] { return (control = rank.transport->poll_control()).has_value(); });
    EXPECT_EQ(control->second.text, "a report");
    EXPECT_TRUE(rank.receive(Lane::Deep) == pattern(large.size(), rank.other, 1));
    rank.meet();
  });
}

// Reads go on while writes are blocked: both ranks write more than all buffers hold before they
// read.
TEST(TcpTransport, AnOrdinaryLaneThatIsFullStopsItsWriterAlone) {
  Settings settings = tcp_settings();
  settings.tcp_socket_bytes = 64 << 10;
  on_two(settings, [](Rank& rank) {
    const Bytes large = pattern(std::size_t{16} << 20U, rank.bootstrap->rank(), 1);
    Departure departure = rank.departure_of(large, 1, Lane::Ordinary);
    rank.until("some of it", [&] {
      rank.transport->publish(departure);
      return departure.published > 0;
    });
    const Deadline while_full = Deadline::after(milliseconds(300));
    while (!while_full.expired()) {
      rank.transport->publish(departure);
      rank.transport->progress();
    }
    EXPECT_FALSE(departure.complete());
    Bytes theirs;
    bool received = false;
    rank.until("the rest", [&] {
      received = received || rank.read_some(Lane::Ordinary, theirs);
      return !(departure.complete() || rank.transport->publish(departure))
                 ? false
                 : received && departure.complete();
    });
    EXPECT_TRUE(theirs == pattern(large.size(), rank.other, 1));
    rank.meet();
  });
}

TEST(TcpTransport, WhatComesWakesASleeper) {
  on_two(tcp_settings(), [](Rank& rank) {
    Doorbell bell;
    rank.transport->ring(&bell);
    const Bytes data = pattern(4, 0, 1);
    if (rank.bootstrap->rank() == 0) {
      std::this_thread::sleep_for(milliseconds(50));
      rank.send(data, 1, Lane::Ordinary);
    } else {
      const Doorbell::Sleeper sleeper(bell);
      const Deadline deadline = soon();
      while (rank.transport->arrived(0, Lane::Ordinary) == nullptr && !deadline.expired()) {
        const std::uint32_t ticket = sleeper.ticket();
        if (!rank.transport->progress()) {
          rank.transport->watch(Transport::Watch::ForSleeper);
          EXPECT_TRUE(sleeper.sleep(ticket, std::chrono::seconds(30)));
        }
      }
      EXPECT_EQ(rank.receive(Lane::Ordinary), data);
    }
    rank.meet();
    rank.transport->ring(nullptr);
  });
}

// The thread takes in a deep message while its reader computes.
TEST(TcpTransport, ADeepMessageComesWhileNobodyLooks) {
  on_two(tcp_settings(), [](Rank& rank) {
    for (std::uint64_t call = 1; call <= 2; ++call) {
      const Bytes large = pattern(std::size_t{32} << 20U, rank.bootstrap->rank(), call);
      rank.send(large, call, Lane::Deep);
      rank.transport->watch(Transport::Watch::AtRest);
      const Deadline deadline = soon();
      Bytes theirs;
      while (theirs.size() < large.size() && !deadline.expired()) {
        (void)rank.read_some(Lane::Deep, theirs);  // looks without driving
        std::this_thread::sleep_for(milliseconds(1));
      }
      EXPECT_TRUE(theirs == pattern(large.size(), rank.other, call));
      rank.transport->finish(rank.other, Lane::Deep);
    }
    rank.meet();
  });
}

TEST(TcpTransport, ARankThatLeavesIsKnownOnceItsDataHaveBeenRead) {
  on_two(tcp_settings(), [](Rank& rank) {
    const Bytes bytes = pattern(300'000, 0, 3);
    if (rank.bootstrap->rank() == 0) {
      rank.send(bytes, 3, Lane::Ordinary);
      rank.transport.reset();
      return;
    }
    EXPECT_EQ(rank.receive(Lane::Ordinary), bytes);
    std::optional<std::string> cause;
    rank.until("the goodbye",
               [&] { return (cause = rank.transport->cause_of_death(0)).has_value(); });
    EXPECT_THAT(*cause, AllOf(HasSubstr("has closed its context"),
                              HasSubstr("call 3, neighbor_allreduce")));
    EXPECT_TRUE(rank.transport->has_left(0));
    EXPECT_FALSE(rank.transport->has_died(0));
    rank.send(bytes, 4, Lane::Ordinary);  // goes nowhere, and nobody waits for it
  });
}

TEST(TcpTransport, LeavingWithUnreadDataDoesNotHang) {
  on_two(tcp_settings(), [](Rank& rank) {
    rank.send(pattern(2'000'000, rank.bootstrap->rank(), 1), 1, Lane::Deep);
    rank.transport.reset();
    rank.meet();
  });
}

TEST(TcpTransport, TransportsComeAndGo) {
  for (auto round = 0; round < 10; ++round) {
    on_two(tcp_settings(), [](Rank& rank) {
      rank.send(pattern(100, rank.bootstrap->rank(), 1), 1, Lane::Ordinary);
      EXPECT_EQ(rank.receive(Lane::Ordinary), pattern(100, rank.other, 1));
    });
  }
}

TEST(TcpTransport, SettingsThatDoNotFitOneRankAreAnErrorOnAll) {
  std::vector<std::jthread> threads;
  for (auto& bootstrap : make_thread_bootstraps(2)) {
    threads.emplace_back([own = std::move(bootstrap)] {
      Settings settings = tcp_settings();
      settings.tcp_interface = own->rank() == 1 ? "eth99" : "";
      try {
        (void)make_network(*own, settings, soon());
        ADD_FAILURE() << "expected an error";
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(own->rank(), 1);
        EXPECT_THAT(error.what(), HasSubstr("BLUEFOG_TCP_INTERFACE=eth99"));
      } catch (const PeerFailure& error) {
        EXPECT_EQ(own->rank(), 0);
        EXPECT_EQ(error.rank(), 1);
        EXPECT_THAT(error.what(), HasSubstr("eth99"));
      }
    });
  }
}

}  // namespace
}  // namespace bluefog
