// What ranks of a device call tell each other before an exchange is launched, and the memory for it.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "bluefog_cpp/device/device_call.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// As cudaMalloc aligns.
constexpr std::size_t kScratchAlignment = 256;
/// What kernels read at once.
constexpr std::uintptr_t kPackBytes = 16;

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

}  // namespace

DeviceCall::Neighbor& DeviceCall::neighbor_of(int rank) {
  const auto found = std::ranges::find(neighbors_, rank,
                                       [](const Neighbor& neighbor) { return neighbor.rank.rank; });
  return found != neighbors_.end() ? *found
                                   : neighbors_.emplace_back(Neighbor{.rank = {.rank = rank}});
}

void DeviceCall::find_neighbors() {
  neighbors_.clear();
  for (const Outgoing& outgoing : exchange_.outgoing) {
    for (const WeightedRank& reader : outgoing.readers) {
      Neighbor& neighbor = neighbor_of(reader.rank);
      neighbor.own.sends += outgoing.bytes;
      neighbor.own.weight = reader.weight;
    }
  }
  for (const Incoming& incoming : exchange_.incoming) {
    neighbor_of(incoming.source.rank).own.expects += incoming.bytes;
  }
}

void DeviceCall::list_sends() {
  sends_.clear();
  for (const Outgoing& outgoing : exchange_.outgoing) {
    for (const WeightedRank& reader : outgoing.readers) {
      if (outgoing.bytes > 0) {
        sends_.push_back({outgoing.data, outgoing.bytes, reader.rank});
      }
    }
  }
}

// Ranks that have agreed in an earlier exchange launch this one without asking again.
void DeviceCall::list_receives() {
  try {
    place_receives();
  } catch (const CudaError&) {
    const std::exception_ptr refusal = of_this_call(std::current_exception());
    if (!partners_.empty() && !channel_->link().offers() && !capture_) {
      channel_->end(refusal);
    }
    std::rethrow_exception(refusal);
  }
}

void DeviceCall::place_receives() {
  std::uintptr_t like = 0;  // what kernels read lies as what it is added to
  if (!exchange_.outgoing.empty()) {
    like = reinterpret_cast<std::uintptr_t>(exchange_.outgoing.back().data) % kPackBytes;
  }
  const bool stays = channel_->link().offers() && !keeps_messages();
  std::size_t scratch_bytes = 0;
  for (const Incoming& incoming : exchange_.incoming) {
    scratch_bytes += incoming.place == nullptr && !stays ? rounded_up(incoming.bytes + like) : 0;
  }
  std::byte* scratch = nullptr;
  if (keeps_messages()) {
    kept_ = channel_->take_memory(scratch_bytes);
    scratch = kept_.data();
  } else if (scratch_bytes > 0) {
    scratch = channel_->scratch(scratch_bytes);
  }
  receives_.clear();
  for (const Incoming& incoming : exchange_.incoming) {
    std::byte* place = incoming.place;
    if (place == nullptr && !stays) {
      place = scratch + like;
      scratch += rounded_up(incoming.bytes + like);
    }
    receives_.push_back(
        {.place = place, .bytes = incoming.bytes, .source = incoming.source.rank});
  }
}

std::size_t DeviceCall::bytes_here() {
  if (!std::exchange(is_offered_, true)) {
    for (Neighbor& neighbor : neighbors_) {
      neighbor.own.launched = channel_->launched_with(neighbor.rank.rank);
    }
    if (channel_->link().offers()) {
      const gpu::DeviceScope scope = channel_->enter();
      offer();
    }
  }
  return sizeof(Terms);
}

void DeviceCall::offer() {
  throw_if_ended();
  has_offer_ = true;
  try {
    channel_->link().offer(call_index(), {sends_.data(), sends_.size()});
  } catch (const CudaError&) {
    std::rethrow_exception(of_this_call(std::current_exception()));
  }
  for (const DeviceSend& send : sends_) {
    Terms& own = neighbor_of(send.reader).own;
    if (own.sends != send.bytes) {
      throw InternalError(fmt::format("rank {}, {}, {}: expected one payload for rank {}", rank_,
                                      call_text(call_index()), envelope_.describe(), send.reader));
    }
    own.offer = send.offer;
  }
}

// Two ranks agree once in a call: what they exchange later in it follows from the same numbers.
// Then nothing is sent, but the exchange counts on all ranks, whoever takes part in it. Offers are
// told each time.
void DeviceCall::describe_agreement(ExchangeSpec& spec) {
  stage_ = Stage::Agreement;
  const bool offers = channel_->link().offers();
  spec.supply = this;
  is_offered_ = false;
  outgoing_.clear();
  incoming_.clear();
  const auto [agreed, end] =
      std::ranges::stable_partition(neighbors_, [&](const Neighbor& neighbor) {
        return offers || std::ranges::find(partners_, neighbor.rank.rank) == partners_.end();
      });
  asked_ = static_cast<std::size_t>(agreed - neighbors_.begin());
  for (const Neighbor& neighbor : std::span(neighbors_).first(asked_)) {
    outgoing_.push_back({.data = reinterpret_cast<const std::byte*>(&neighbor.own),
                         .bytes = sizeof(Terms),
                         .readers = {&neighbor.rank, 1}});
    incoming_.push_back({.source = neighbor.rank, .bytes = sizeof(Terms)});
    if (std::ranges::find(partners_, neighbor.rank.rank) == partners_.end()) {
      partners_.push_back(neighbor.rank.rank);
    }
  }
  spec.envelope = envelope_;
  spec.outgoing = outgoing_;
  spec.incoming = incoming_;
  spec.pace = Pace::Each;
  spec.last = false;
}

// A rank launches when its own neighbours agree: one of this rank's may then have failed the call here.
// Not before the launch: a neighbour that is ahead has said so when this rank had not come so far.
void DeviceCall::check_launched() const {
  for (const auto& [rank, own, theirs] : std::span(neighbors_).first(asked_)) {
    if (own.launched != theirs.launched) {
      throw PeerFailure(
          rank.rank,
          fmt::format("{}: rank {} has launched {} exchanges with this rank so far, which has "
                      "launched {}: an earlier call failed on the one when the other had launched it",
                      describe(), rank.rank, theirs.launched, own.launched));
    }
  }
}

void DeviceCall::check_terms(const Neighbor& neighbor) const {
  const auto& [rank, own, theirs] = neighbor;
  if (own.sends != theirs.expects || own.expects != theirs.sends) {
    throw MismatchError(
        fmt::format("rank {}, {}, {}: senders and receivers do not match: rank {} sends {} bytes "
                    "to rank {}, which "
                    "expects {}; rank {} sends {} bytes to rank {}, which expects {}",
                    rank_, call_text(call_index()), envelope_.describe(), rank_, own.sends,
                    rank.rank, theirs.expects, rank.rank, theirs.sends, rank_, own.expects));
  }
}

}  // namespace bluefog
