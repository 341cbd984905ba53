#include "bluefog_cpp/engine/exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tests/unit/engine/scripted_exchange.hpp"

namespace bluefog::testing {
namespace {

using ExchangeTest = ScriptedExchange;

/// Plays, for two sources, a header and two pieces of each.
class Arrivals {
 public:
  explicit Arrivals(ScriptedTransport& transport) : transport_(transport) {}

  void play(int source, const MessageHeader& header) {
    const std::size_t event = events_.at(static_cast<std::size_t>(source - 1))++;
    std::size_t& bytes = delivered.at(static_cast<std::size_t>(source - 1));
    const auto data = rising_bytes(kBytes, 10 * source);
    if (event == 0) {
      MessageHeader weighted = header;
      weighted.weight = source == 1 ? 0.5 : 2.0;
      transport_.begin_message(source, weighted);
      has_header.at(static_cast<std::size_t>(source - 1)) = true;
    } else if (event == 1) {
      transport_.deliver(source, std::span(data).first(kFirstPiece));
      bytes = kFirstPiece;
    } else {
      transport_.deliver(source, std::span(data).subspan(kFirstPiece));
      bytes = kBytes;
    }
  }

  std::array<std::size_t, 2> delivered{};
  std::array<bool, 2> has_header{};

 private:
  ScriptedTransport& transport_;
  std::array<std::size_t, 2> events_{};
};

/// The sum of both sources' messages: receiver's times sender's weight is 0.25 for rank 1 and 0.5
/// for rank 2.
std::vector<double> expected_sum() {
  std::vector<double> sum(2 * kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    sum[i] =
        0.25 * static_cast<double>((10 + i) & 0xffU) + 0.5 * static_cast<double>((20 + i) & 0xffU);
  }
  return sum;
}

class ExchangeOrders : public ScriptedExchange {
 protected:
  /// Runs one exchange for each order in which three events of each source can come.
  template <typename Check>
  void play_all(Pace pace, Check check) {
    std::vector<int> order{1, 1, 1, 2, 2, 2};
    int orders = 0;
    expect_from({{.rank = 1, .weight = 0.5}, {.rank = 2, .weight = 0.25}});
    do {
      ++orders;
      sum_ = {};
      Arrivals arrivals(transport_);
      spec().pace = pace;
      start();
      for (const int source : order) {
        EXPECT_FALSE(exchange_.finished());
        arrivals.play(source, header());
        step();
        EXPECT_FALSE(step()) << "a second look finds nothing more";
        check(arrivals);
      }
      EXPECT_TRUE(exchange_.finished());
      EXPECT_EQ(sum_.sum, expected_sum());
      EXPECT_EQ(transport_.waiting_messages(1), 0U);
      EXPECT_EQ(transport_.waiting_messages(2), 0U);
    } while (std::ranges::next_permutation(order).found);
    EXPECT_EQ(orders, 20);
  }
};

TEST_F(ExchangeOrders, PiecesAreUsedTogetherOnceAllSourcesHaveThem) {
  play_all(Pace::Together, [this](const Arrivals& arrivals) {
    const bool have_headers = arrivals.has_header[0] && arrivals.has_header[1];
    const std::size_t both =
        have_headers ? std::min(arrivals.delivered[0], arrivals.delivered[1]) : 0;
    EXPECT_EQ(sum_.used_of, (std::array{both, both}));
  });
}

TEST_F(ExchangeOrders, PiecesOfEachSourceAreUsedAsTheyArrive) {
  play_all(Pace::Each, [this](const Arrivals& arrivals) {
    EXPECT_EQ(sum_.used_of, arrivals.delivered);
    AwaitedRanks awaited;
    for (const int source : {1, 2}) {
      if (arrivals.delivered.at(static_cast<std::size_t>(source - 1)) < kBytes) {
        awaited.push_back(source);
      }
    }
    EXPECT_EQ(exchange_.awaited_sources(), awaited);
  });
}

TEST_F(ExchangeTest, APayloadIsPublishedInChunksAsThereIsRoom) {
  send_to({{.rank = 1, .weight = 1.0}, {.rank = 2, .weight = 1.0}}, 200);
  spec().bytes = 0;
  start();
  const auto outbox = transport_.outbox();
  rights_.may_publish = false;
  EXPECT_FALSE(step());
  EXPECT_TRUE(outbox->messages.empty());
  rights_.may_publish = true;
  for (const std::size_t published : {64U, 128U, 192U, 200U}) {
    EXPECT_FALSE(exchange_.finished());
    EXPECT_EQ(exchange_.awaited_readers(), (AwaitedRanks{1, 2}));
    transport_.set_room(64);
    EXPECT_TRUE(step());
    ASSERT_EQ(outbox->messages.size(), 1U);
    EXPECT_EQ(outbox->messages[0].data.size(), published);
  }
  EXPECT_TRUE(exchange_.finished());
  EXPECT_EQ(exchange_.awaited_readers(), AwaitedRanks());
  EXPECT_EQ(outbox->messages[0].data, payload_);
  EXPECT_EQ(outbox->messages[0].readers, (std::vector{1, 2}));
}

/// A payload for rank 1, one for rank 2, and one more for rank 1.
class SeveralPayloads : public ScriptedExchange {
 protected:
  SeveralPayloads() {
    send_to({{.rank = 1, .weight = 1.0}}, kBytes);
    outgoing_ = {{.data = payload_.data(), .bytes = kBytes, .readers = readers_},
                 {.data = payload_.data(), .bytes = kBytes, .readers = {&second_, 1}},
                 {.data = payload_.data(), .bytes = kBytes, .readers = readers_}};
    spec().bytes = 0;
    start();
    transport_.block({1});
  }

  [[nodiscard]] std::vector<std::pair<int, std::size_t>> sent() const {
    std::vector<std::pair<int, std::size_t>> found;
    for (const auto& message : transport_.outbox()->messages) {
      found.emplace_back(message.readers.front(), message.data.size());
    }
    return found;
  }

  WeightedRank second_{.rank = 2, .weight = 1.0};
};

using Sizes = std::vector<std::pair<int, std::size_t>>;

TEST_F(SeveralPayloads, OfOneStreamGoOneAfterTheOther) {
  step();
  EXPECT_EQ(sent(), (Sizes{{1, 0}}));
  transport_.block({});
  step();
  step();
  EXPECT_EQ(sent(), (Sizes{{1, kBytes}, {2, kBytes}, {1, kBytes}}));
  EXPECT_TRUE(exchange_.finished());
}

TEST_F(SeveralPayloads, ToDifferentReadersGoSideBySideWhereEachHasAStream) {
  transport_.set_stream_per_reader(true);
  step();
  EXPECT_EQ(sent(), (Sizes{{1, 0}, {2, kBytes}})) << "the third waits for the first";
  EXPECT_EQ(exchange_.awaited_readers(), (AwaitedRanks{1, 1}));
  transport_.block({});
  step();
  step();
  EXPECT_EQ(sent(), (Sizes{{1, kBytes}, {2, kBytes}, {1, kBytes}}));
  EXPECT_TRUE(exchange_.finished());
}

/// What arrives is written over what is being sent.
class OverwritingExchange : public ScriptedExchange {
 protected:
  OverwritingExchange() {
    expect_from({{.rank = 1, .weight = 1.0}});
    send_to({{.rank = 2, .weight = 1.0}}, kBytes);
    spec().overwrites_payload = true;
    start();
    transport_.send_message(1, header(), rising_bytes(kBytes, 5));
  }
};

TEST_F(OverwritingExchange, WaitsUntilThePayloadWasCopiedOut) {
  transport_.set_room(0);
  step();
  EXPECT_EQ(sum_.used_of[0], 0U);
  transport_.set_room(64);
  step();
  EXPECT_EQ(sum_.used_of[0], 64U);
  EXPECT_FALSE(exchange_.finished());
  transport_.set_room(64);
  step();
  EXPECT_TRUE(exchange_.finished());
  EXPECT_EQ(sum_.calls, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 64}, {64, 36}}));
}

TEST_F(OverwritingExchange, TakesNoPartOfAnElement) {
  for (const std::size_t room : {63, 5, 31}) {
    transport_.set_room(room);
    step();
  }
  EXPECT_FALSE(exchange_.finished());
  transport_.set_room(1);
  step();
  EXPECT_TRUE(exchange_.finished());
  EXPECT_EQ(sum_.calls, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 64}, {64, 36}}));
}

TEST_F(ExchangeTest, WithoutOverwritingNothingWaitsForTheReaders) {
  expect_from({{.rank = 1, .weight = 1.0}});
  send_to({{.rank = 2, .weight = 1.0}}, kBytes);
  spec();
  start();
  transport_.send_message(1, header(), rising_bytes(kBytes, 5));
  transport_.set_room(0);
  step();
  EXPECT_EQ(sum_.used_of[0], kBytes);
  EXPECT_FALSE(exchange_.finished());
}

TEST_F(ExchangeTest, RestsUntilSomebodyWaitsWhereItsResultMayNotChangeEarlier) {
  expect_from({{.rank = 1, .weight = 1.0}});
  spec().consumption = Consumption::OnWait;
  start();
  transport_.send_message(1, header(), rising_bytes(kBytes, 5));
  EXPECT_FALSE(step());
  EXPECT_EQ(sum_.used_of[0], 0U);
  rights_.waited_for = true;
  EXPECT_TRUE(step());
  EXPECT_TRUE(exchange_.finished());
}

TEST_F(ExchangeTest, ARetractionGivesWhatReadersWereToldOfAndHaveNotGot) {
  ScriptedTransport other;
  routes_ = {nullptr, &transport_, &other, &transport_};
  send_to({{.rank = 1, .weight = 1.0}, {.rank = 2, .weight = 1.0}, {.rank = 3, .weight = 1.0}},
          kBytes);
  spec().bytes = 0;
  start();
  transport_.set_room(64);
  other.set_open(false);
  step();
  auto retractions = exchange_.begun();
  exchange_.drop();
  ASSERT_EQ(retractions.size(), 1U) << "rank 2 was not notified";
  EXPECT_EQ(retractions[0].transport, &transport_);
  EXPECT_EQ(retractions[0].departure.published, 64U);
  EXPECT_EQ(retractions[0].departure.header.id, CallId::make(kCall, 0));
  readers_.clear();  // the operation's memory may go
  std::vector<int> readers;
  for (const WeightedRank& reader : retractions[0].departure.readers) {
    readers.push_back(reader.rank);
  }
  EXPECT_EQ(readers, (std::vector{1, 3}));
  EXPECT_TRUE(exchange_.published());
}

TEST_F(ExchangeTest, ACompleteMessageIsNotRetracted) {
  expect_from({{.rank = 2, .weight = 1.0}});
  send_to({{.rank = 1, .weight = 1.0}}, kBytes);
  spec();
  start();
  step();
  EXPECT_TRUE(exchange_.published());
  EXPECT_TRUE(exchange_.begun().empty());
  exchange_.drop();
}

}  // namespace
}  // namespace bluefog::testing
