#include "bluefog_cpp/transport/nccl/device_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/engine.hpp"

namespace bluefog {
namespace {

/// As cudaMalloc aligns.
constexpr std::size_t kScratchAlignment = 256;
constexpr std::chrono::microseconds kQueryPeriod{50};
/// What kernels read at once.
constexpr std::uintptr_t kPackBytes = 16;

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

}  // namespace

DeviceCall::DeviceCall(std::shared_ptr<DeviceChannel> channel, int rank,
                       std::shared_ptr<Operation> operation, const DeviceStreams& streams)
    : channel_(std::move(channel)),
      rank_(rank),
      operation_(std::move(operation)),
      streams_(streams),
      envelope_(operation_->envelope()) {
  envelope_.kind = on_device(envelope_.kind);
  const gpu::DeviceScope scope = channel_->enter();
  const std::size_t distinct = streams_[0] == streams_[1] ? 1 : 2;
  for (const gpu::StreamHandle stream : std::span(streams_).first(distinct)) {
    channel_->cuda().record(ready_.emplace_back(channel_->take_event()).get(), stream);
  }
  done_.emplace(channel_->take_event());
}

bool DeviceCall::next(ExchangeSpec& spec) {
  const gpu::DeviceScope scope = channel_->enter();
  if (stage_ == Stage::Begin) {
    begin();
  }
  if (stage_ == Stage::Agreement) {
    launch();
  }
  const bool was_last = stage_ == Stage::Agreement && exchange_.last;
  exchange_ = {};
  if (was_last || !operation_->next(exchange_)) {
    channel_->cuda().record(done_->get(), channel_->stream());
    return false;
  }
  if (exchange_.device == DeviceKind::Cpu) {
    stage_ = Stage::Host;
    spec = exchange_;
    spec.envelope.kind = on_device(spec.envelope.kind);
  } else {
    stage_ = Stage::Agreement;
    find_neighbors();
    describe_agreement(spec);
  }
  spec.last = false;
  return true;
}

void DeviceCall::begin() {
  if (const auto failure = channel_->failure()) {
    std::rethrow_exception(failure);
  }
  for (const gpu::Event& event : ready_) {
    channel_->cuda().wait(channel_->stream(), event.get());
  }
}

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

// Two ranks agree once in a call: what they exchange later in it follows from the same numbers.
// Then nothing is sent, but the exchange counts on all ranks, whoever takes part in it.
void DeviceCall::describe_agreement(ExchangeSpec& spec) {
  outgoing_.clear();
  incoming_.clear();
  const auto [agreed, end] =
      std::ranges::stable_partition(neighbors_, [&](const Neighbor& neighbor) {
        return std::ranges::find(partners_, neighbor.rank.rank) == partners_.end();
      });
  for (const Neighbor& neighbor : std::ranges::subrange(neighbors_.begin(), agreed)) {
    outgoing_.push_back({.data = reinterpret_cast<const std::byte*>(&neighbor.own),
                         .bytes = sizeof(Terms),
                         .readers = {&neighbor.rank, 1}});
    incoming_.push_back({.source = neighbor.rank, .bytes = sizeof(Terms)});
    partners_.push_back(neighbor.rank.rank);
  }
  spec.envelope = envelope_;
  spec.outgoing = outgoing_;
  spec.incoming = incoming_;
  spec.pace = Pace::Each;
}

void DeviceCall::receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
  if (stage_ == Stage::Host) {
    operation_->receive(offset, bytes, pieces);
    return;
  }
  Neighbor& neighbor = neighbors_[pieces[0].source_index];
  std::memcpy(reinterpret_cast<std::byte*>(&neighbor.theirs) + offset, pieces[0].data, bytes);
  if (offset + bytes == sizeof(Terms)) {
    check_terms(neighbor);
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

void DeviceCall::launch() {
  try {
    enqueue();
  } catch (const TransportError&) {
    channel_->end(std::current_exception());  // others may have launched their part
    throw;
  }
  channel_->cuda().record(done_->get(), channel_->stream());
  channel_->watch({.call = call_index(),
                   .text = envelope_.describe(),
                   .partners = partners_,
                   .done = done_->get(),
                   .keep = shared_from_this(),
                   .cut_short = &cut_short_});
}

void DeviceCall::enqueue() {
  boost::container::small_vector<DeviceTransfer, kInlineNeighbors> sends;
  boost::container::small_vector<DeviceTransfer, kInlineNeighbors> receives;
  boost::container::small_vector<Piece, kInlineNeighbors> pieces;
  std::uintptr_t like = 0;  // what kernels read lies as what it is added to
  for (const Outgoing& outgoing : exchange_.outgoing) {
    like = reinterpret_cast<std::uintptr_t>(outgoing.data) % kPackBytes;
    for (const WeightedRank& reader : outgoing.readers) {
      if (outgoing.bytes > 0) {
        // NCCL reads what it sends, and its own signature says so.
        sends.push_back({const_cast<std::byte*>(outgoing.data), outgoing.bytes, reader.rank});
      }
    }
  }
  std::size_t scratch_bytes = 0;
  for (const Incoming& incoming : exchange_.incoming) {
    scratch_bytes += incoming.place == nullptr ? rounded_up(incoming.bytes + like) : 0;
  }
  std::byte* scratch = channel_->scratch(scratch_bytes);
  for (std::size_t i = 0; i < exchange_.incoming.size(); ++i) {
    const Incoming& incoming = exchange_.incoming[i];
    std::byte* place = incoming.place;
    if (place == nullptr) {
      place = scratch + like;
      scratch += rounded_up(incoming.bytes + like);
      const double sent_with = neighbor_of(incoming.source.rank).theirs.weight;
      pieces.push_back(
          {.data = place, .weight = incoming.source.weight * sent_with, .source_index = i});
    }
    if (incoming.bytes > 0) {
      receives.push_back({place, incoming.bytes, incoming.source.rank});
    }
  }
  if (!sends.empty() || !receives.empty()) {
    channel_->transfer({sends.data(), sends.size()}, {receives.data(), receives.size()});
  }
  if (exchange_.pace == Pace::Together && exchange_.bytes > 0) {
    operation_->receive(0, exchange_.bytes, {pieces.data(), pieces.size()});
  }
}

void DeviceCall::order_streams() {
  const gpu::DeviceScope scope = channel_->enter();
  for (const gpu::StreamHandle stream : std::span(streams_).first(ready_.size())) {
    channel_->cuda().wait(stream, done());
  }
}

void DeviceWork::throw_if_cut_short() const {
  if (call_->is_cut_short()) {
    std::rethrow_exception(channel_->failure());
  }
}

void DeviceWork::wait() {
  engine_->wait(*call_);
  throw_if_cut_short();
  call_->order_streams();
}

void DeviceWork::synchronize() {
  wait();
  while (true) {
    {
      const gpu::DeviceScope scope = channel_->enter();
      if (channel_->cuda().has_happened(call_->done())) {
        break;
      }
    }
    engine_->check_interrupt();
    std::this_thread::sleep_for(kQueryPeriod);
  }
  throw_if_cut_short();
}

bool DeviceWork::done() const noexcept { return Engine::is_done(*call_); }

}  // namespace bluefog
