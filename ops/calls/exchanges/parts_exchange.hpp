#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog::ops {

/// Bytes that go to some ranks.
struct SentPart {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::vector<WeightedRank> readers{};
};

/// Bytes that come from a rank, and where they go.
struct TakenPart {
  int source = 0;
  std::byte* place = nullptr;
  std::size_t bytes = 0;
};

using SentParts = std::vector<SentPart>;
using TakenParts = std::vector<TakenPart>;

/// Parts whose sizes and places all ranks know beforehand, each straight to its place: one
/// exchange, for allgather, gather, scatter and alltoall. A part of another size than expected is a
/// mismatch.
class PartsExchange final : public Operation {
 public:
  /// @param name with the root and the like, for the fingerprint.
  PartsExchange(OpKind kind, Dtype dtype, std::string name, SentParts sent, TakenParts taken);

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  bool next(ExchangeSpec& spec) override;
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override;

 private:
  std::string name_;
  Envelope envelope_;
  SentParts sent_;
  TakenParts taken_;
  boost::container::small_vector<Outgoing, kInlineNeighbors> outgoing_;
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
};

}  // namespace bluefog::ops
