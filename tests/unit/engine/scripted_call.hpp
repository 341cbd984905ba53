#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/operation.hpp"

namespace bluefog::testing {

/// A call of one exchange, which keeps what it receives.
class ScriptedCall final : public Operation {
 public:
  struct Options {
    std::vector<int> sources{};
    std::vector<int> readers{};
    std::vector<std::byte> payload = std::vector<std::byte>(4);
    std::string_view name{};
    int partner = -1;
    Consumption consumption = Consumption::AsItArrives;
    Pace pace = Pace::Each;
    bool changes_envelope = false;
  };

  explicit ScriptedCall(Options options) : options_(std::move(options)) {
    envelope_ = envelope_of(options_.payload.size(), options_.name);
    for (const int source : options_.sources) {
      incoming_.push_back({.source = {.rank = source}, .bytes = options_.payload.size()});
    }
    for (const int reader : options_.readers) {
      readers_.push_back({.rank = reader});
    }
    received.resize(options_.sources.size());
  }

  [[nodiscard]] static Envelope envelope_of(std::size_t bytes, std::string_view name = {}) {
    return Envelope::make(OpKind::NeighborAllgather, Dtype::UInt8, static_cast<std::int64_t>(bytes),
                          name);
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  [[nodiscard]] bool envelope_changes() const noexcept override {
    return options_.changes_envelope;
  }
  [[nodiscard]] int partner() const noexcept override { return options_.partner; }
  bool next(ExchangeSpec& spec) override {
    outgoing_ = {
        .data = options_.payload.data(), .bytes = options_.payload.size(), .readers = readers_};
    spec.envelope = envelope_;
    spec.outgoing = {&outgoing_, 1};
    spec.incoming = incoming_;
    spec.pace = options_.pace;
    spec.lane = options_.partner < 0 ? Lane::Ordinary : Lane::Pair;
    spec.consumption = options_.consumption;
    return true;
  }
  void receive(std::size_t /*offset*/, std::size_t bytes, std::span<const Piece> pieces) override {
    auto& of_source = received.at(pieces[0].source_index);
    of_source.insert(of_source.end(), pieces[0].data, pieces[0].data + bytes);
  }

  /// The bytes of each source.
  std::vector<std::vector<std::byte>> received;

 private:
  Options options_;
  Envelope envelope_{};
  std::vector<Incoming> incoming_;
  std::vector<WeightedRank> readers_;
  Outgoing outgoing_{};
};

}  // namespace bluefog::testing
