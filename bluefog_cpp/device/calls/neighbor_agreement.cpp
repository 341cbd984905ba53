#include "bluefog_cpp/device/calls/neighbor_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

NeighborAgreement::Neighbor& NeighborAgreement::neighbor_of(int rank) {
  const auto found = std::ranges::find(neighbors_, rank,
                                       [](const Neighbor& neighbor) { return neighbor.rank.rank; });
  return found != neighbors_.end() ? *found
                                   : neighbors_.emplace_back(Neighbor{.rank = {.rank = rank}});
}

const NeighborAgreement::Terms& NeighborAgreement::terms_of(int source) const {
  const auto found = std::ranges::find(neighbors_, source,
                                       [](const Neighbor& neighbor) { return neighbor.rank.rank; });
  if (found == neighbors_.end()) {
    throw InternalError(fmt::format("{}: expected a neighbour, found rank {}", call_(), source));
  }
  return found->theirs;
}

bool NeighborAgreement::is_partner(int rank) const {
  return std::ranges::find(partners_, rank) != partners_.end();
}

void NeighborAgreement::begin(const ExchangeSpec& exchange) {
  neighbors_.clear();
  for (const Outgoing& outgoing : exchange.outgoing) {
    for (const WeightedRank& reader : outgoing.readers) {
      Neighbor& neighbor = neighbor_of(reader.rank);
      neighbor.own.sends += outgoing.bytes;
      neighbor.own.weight = reader.weight;
    }
  }
  for (const Incoming& incoming : exchange.incoming) {
    neighbor_of(incoming.source.rank).own.expects += incoming.bytes;
  }
}

void NeighborAgreement::describe(ExchangeSpec& spec) {
  outgoing_.clear();
  incoming_.clear();
  const auto [agreed, end] =
      std::ranges::stable_partition(neighbors_, [this](const Neighbor& neighbor) {
        return asking_ == Asking::EachTime || !is_partner(neighbor.rank.rank);
      });
  asked_ = static_cast<std::size_t>(agreed - neighbors_.begin());
  for (const Neighbor& neighbor : std::span(neighbors_).first(asked_)) {
    outgoing_.push_back({.data = reinterpret_cast<const std::byte*>(&neighbor.own),
                         .bytes = sizeof(Terms),
                         .readers = {&neighbor.rank, 1}});
    incoming_.push_back({.source = neighbor.rank, .bytes = sizeof(Terms)});
    if (!is_partner(neighbor.rank.rank)) {
      partners_.push_back(neighbor.rank.rank);
    }
  }
  spec.outgoing = outgoing_;
  spec.incoming = incoming_;
  spec.pace = Pace::Each;
}

void NeighborAgreement::complete() {
  for (Neighbor& neighbor : neighbors_) {
    neighbor.own.launched = launches_.with(neighbor.rank.rank);
  }
}

void NeighborAgreement::set_offer(const DeviceSend& send) {
  Terms& own = neighbor_of(send.reader).own;
  if (own.sends != send.bytes) {
    throw InternalError(fmt::format("{}: expected one payload for rank {}", call_(), send.reader));
  }
  own.offer = send.offer;
}

void NeighborAgreement::receive(std::size_t source_index, std::size_t offset, const std::byte* data,
                                std::size_t bytes) {
  Neighbor& neighbor = neighbors_[source_index];
  std::memcpy(reinterpret_cast<std::byte*>(&neighbor.theirs) + offset, data, bytes);
  if (offset + bytes == sizeof(Terms)) {
    check_terms(neighbor);
  }
}

void NeighborAgreement::check_terms(const Neighbor& neighbor) const {
  const auto& [rank, own, theirs] = neighbor;
  if (own.sends != theirs.expects || own.expects != theirs.sends) {
    throw MismatchError(
        fmt::format("{}: senders and receivers do not match: rank {} sends {} bytes to rank {}, "
                    "which expects {}; rank {} sends {} bytes to rank {}, which expects {}",
                    call_(), rank_, own.sends, rank.rank, theirs.expects, rank.rank, theirs.sends,
                    rank_, own.expects));
  }
}

// A rank launches when its own neighbours agree: one of this rank's may then have failed the call.
void NeighborAgreement::check_launched() const {
  for (const auto& [rank, own, theirs] : std::span(neighbors_).first(asked_)) {
    if (own.launched != theirs.launched) {
      throw PeerFailure(
          rank.rank,
          fmt::format(
              "{}: rank {} has launched {} exchanges with this rank so far, which has "
              "launched {}: an earlier call failed on the one when the other had launched it",
              call_(), rank.rank, theirs.launched, own.launched));
    }
  }
}

void NeighborAgreement::note_launched() {
  if (asking_ == Asking::EachTime) {
    return;
  }
  for (const Neighbor& neighbor : neighbors_) {
    if (neighbor.own.sends + neighbor.own.expects > 0) {  // else there is nothing to mistake
      launches_.note(neighbor.rank.rank);
    }
  }
}

}  // namespace bluefog
