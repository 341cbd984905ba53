#pragma once

#include <cstdint>

#include "bluefog_cpp/engine/operation.hpp"

namespace bluefog {

/// Ends on no rank before all have come to it. Dissemination: in round k every rank sends to the
/// one 2^k after it and receives from the one 2^k before it, in ceil(log2 size) rounds.
class BarrierOperation final : public Operation {
 public:
  /// @param kind the call that it is part of.
  BarrierOperation(OpKind kind, int rank, int size)
      : rank_(rank), size_(size), envelope_(Envelope::make(kind, Dtype::UInt8, 0)) {}

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    if (distance_ >= size_) {
      return false;
    }
    reader_ = {.rank = static_cast<int>((rank_ + distance_) % size_)};
    incoming_ = {.source = {.rank = static_cast<int>((rank_ - distance_ + size_) % size_)}};
    outgoing_ = {.readers = {&reader_, 1}};
    distance_ *= 2;
    spec.envelope = envelope_;
    spec.outgoing = {&outgoing_, 1};
    spec.incoming = {&incoming_, 1};
    spec.pace = Pace::Each;
    spec.last = distance_ >= size_;
    return true;
  }

  void receive(std::size_t /*offset*/, std::size_t /*bytes*/,
               std::span<const Piece> /*pieces*/) override {}

 private:
  std::int64_t rank_;
  std::int64_t size_;
  std::int64_t distance_ = 1;
  Envelope envelope_;
  WeightedRank reader_{};
  Outgoing outgoing_{};
  Incoming incoming_{};
};

}  // namespace bluefog
