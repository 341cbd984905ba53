#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/exchange.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/engine/scripted_transport.hpp"

namespace bluefog::testing {

inline constexpr std::uint64_t kCall = 7;
inline constexpr std::size_t kBytes = 100;
inline constexpr std::size_t kFirstPiece = 64;

/// Reports that a test makes up.
class ScriptedReports final : public PeerReports {
 public:
  [[nodiscard]] const std::string* refusal(int rank, std::uint64_t call) const override {
    return find(refusals, rank, call);
  }
  [[nodiscard]] bool knows_of_abandonment() const noexcept override { return !abandoned.empty(); }
  [[nodiscard]] const std::string* abandonment(int rank, std::uint64_t call) const override {
    return find(abandoned, rank, call);
  }
  [[nodiscard]] bool is_under_way(int /*rank*/, std::uint64_t call) const override {
    return under_way.contains(call);
  }
  [[nodiscard]] Letters& letters() noexcept override { return mail; }
  void note_unneeded_offers(int rank, std::uint64_t call) override { unneeded[rank] = call; }
  [[nodiscard]] bool needs_no_offer(int rank, std::uint64_t call) const override {
    const auto it = unneeded.find(rank);
    return it != unneeded.end() && call <= it->second;
  }
  void report_unexpected(int rank, std::uint64_t call, const std::string& text) override {
    unexpected.push_back(std::to_string(rank) + ", " + call_text(call) + ", " + text);
  }

  using Texts = std::map<std::pair<int, std::uint64_t>, std::string>;
  Texts refusals;
  Texts abandoned;
  std::set<std::uint64_t> under_way;
  std::map<int, std::uint64_t> unneeded;
  std::vector<std::string> unexpected;
  Letters mail{0, 3};

 private:
  static const std::string* find(const Texts& texts, int rank, std::uint64_t call) {
    const auto it = texts.find({rank, call});
    return it == texts.end() ? nullptr : &it->second;
  }
};

/// Sums what it gets, and knows how far each source has come.
class WeightedSum final : public Receiver {
 public:
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    for (const Piece& piece : pieces) {
      std::size_t& used = used_of.at(piece.source_index);
      EXPECT_EQ(offset, used) << "source " << piece.source_index;
      used += bytes;
      for (std::size_t i = 0; i < bytes; ++i) {
        sum.at(offset + i) += piece.weight * std::to_integer<int>(piece.data[i]);
      }
    }
    calls.emplace_back(offset, bytes);
  }

  std::vector<double> sum = std::vector<double>(2 * kBytes);
  std::array<std::size_t, 2> used_of{};
  std::vector<std::pair<std::size_t, std::size_t>> calls;
};

/// Rank 0, which sends `payload` to `readers` and expects `bytes` of ranks 1 and 2.
class ScriptedExchange : public ::testing::Test {
 protected:
  ScriptedExchange() { routes_ = {nullptr, &transport_, &transport_}; }

  static Envelope envelope(std::size_t bytes = kBytes) {
    return Envelope::make(OpKind::NeighborAllreduce, Dtype::UInt8,
                          static_cast<std::int64_t>(bytes));
  }
  static MessageHeader header(std::uint64_t call = kCall, std::size_t bytes = kBytes) {
    return {
        .id = CallId::make(call, 0), .bytes = bytes, .weight = 1.0, .envelope = envelope(bytes)};
  }

  void expect_from(const std::vector<WeightedRank>& sources, std::size_t bytes = kBytes) {
    for (const WeightedRank& source : sources) {
      incoming_.push_back({.source = source, .bytes = bytes});
    }
  }
  void send_to(std::vector<WeightedRank> readers, std::size_t bytes) {
    readers_ = std::move(readers);
    payload_ = rising_bytes(bytes, 1);
    outgoing_ = {{.data = payload_.data(), .bytes = bytes, .readers = readers_}};
  }
  ExchangeSpec& spec() {
    ExchangeSpec& spec = exchange_.new_spec();
    spec.envelope = envelope();
    spec.outgoing = outgoing_;
    spec.incoming = incoming_;
    spec.bytes = kBytes;
    return spec;
  }
  void start() { exchange_.start(0, CallId::make(kCall, 0), routes_, sum_); }
  bool step() { return exchange_.step(rights_, reports_); }
  template <typename Error>
  std::string error_of_steps() {
    return error_of<Error>([this] {
      while (true) {
        step();
      }
    });
  }

  ScriptedTransport transport_;
  ScriptedReports reports_;
  WeightedSum sum_;
  Routes routes_;
  std::vector<Incoming> incoming_;
  std::vector<WeightedRank> readers_;
  std::vector<std::byte> payload_;
  std::vector<Outgoing> outgoing_;
  Exchange exchange_;
  StepRights rights_{};
};

}  // namespace bluefog::testing
