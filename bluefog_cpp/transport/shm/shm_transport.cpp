#include "bluefog_cpp/transport/shm/shm_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/base/silence.hpp"
#include "bluefog_cpp/base/ticks.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/shm/shared_text.hpp"

namespace bluefog::shm {
namespace {

constexpr std::size_t kLeastChunk = std::size_t{64} << 10U;
constexpr std::size_t kDeepChunk = std::size_t{8} << 20U;
/// Mail that one reader has not taken; a single message may be longer.
constexpr std::size_t kMostMail = std::size_t{64} << 20U;

}  // namespace

ShmTransport::ShmTransport(std::string_view name, int size, std::shared_ptr<HostGroup> group,
                           const ShmOptions& options)
    : name_(name),
      group_(std::move(group)),
      own_(group_->own()),
      index_of_(static_cast<std::size_t>(size), -1),
      pool_(group_->region(own_), options.chunk_bytes, options.slots),
      copy_policy_(options.copy),
      control_(*group_),
      own_status_(group_->head(own_).status),
      is_polled_(options.polled),
      heartbeat_(options.heartbeat) {
  states_.reserve(group_->size());
  for (std::size_t i = 0; i < group_->size(); ++i) {
    index_of_[static_cast<std::size_t>(rank_at(i))] = static_cast<int>(i);
    states_.emplace_back(*group_, i);
  }
}

ShmTransport::~ShmTransport() {
  own_status_.leave();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    head(i).doorbell.ring();
  }
}

bool ShmTransport::reaches(int rank) const noexcept {
  return index_of_[static_cast<std::size_t>(rank)] >= 0 && rank != rank_at(own_);
}

// ---- writing

bool ShmTransport::has_room(std::size_t reader, std::size_t lane) {
  PeerState& state = states_[reader];
  Writing& writing = state.writing[lane];
  if (writing.next - writing.consumed < kStreamEntries) {
    return true;
  }
  if (writing.stream == nullptr) {
    writing.stream = group_->make<Stream>(group_->link(own_, reader).streams[lane]);
  }
  if (state.is_gone) {
    return true;
  }
  writing.consumed = writing.stream->consumed.load(std::memory_order_acquire);
  return writing.next - writing.consumed < kStreamEntries;
}

bool ShmTransport::all_have_room(const Departure& departure) {
  return std::ranges::all_of(departure.readers, [&](const WeightedRank& reader) {
    const std::size_t index = index_of(reader.rank);
    // Control messages about earlier calls have to be there before messages of later ones.
    return !control_.has_waiting(index) &&
           has_room(index, static_cast<std::size_t>(departure.lane));
  });
}

bool ShmTransport::is_over(const Claim& claim) noexcept {
  PeerState& state = states_[static_cast<std::size_t>(claim.peer)];
  Writing& writing = state.writing[claim.lane];
  if (writing.consumed > claim.entry || state.is_gone) {
    return true;
  }
  writing.consumed = writing.stream->consumed.load(std::memory_order_acquire);
  return writing.consumed > claim.entry;
}

std::size_t ShmTransport::next_chunk_bytes(const Departure& departure) const noexcept {
  const std::size_t bytes = departure.header.bytes;
  std::size_t chunk = 0;
  if (is_deep(departure.lane)) {
    // Few, large chunks: the whole message has to fit into the stream.
    chunk = round_up(std::max(kDeepChunk, bytes / (kStreamEntries / 16)), kPage);
  } else {
    // Several chunks let the reader begin before the writer has ended.
    chunk = std::clamp(round_up(bytes / 4, kPage), std::min(kLeastChunk, pool_.chunk_bytes()),
                       pool_.chunk_bytes());
  }
  return std::min(chunk, std::min(bytes, departure.here) - departure.published);
}

Carriage ShmTransport::copy_out(const Departure& departure, std::byte* to, std::size_t bytes) {
  const std::byte* const from = departure.data + departure.published;
  const std::size_t index = copy_class(departure.lane, departure.header.bytes);
  const CopyPath path = copy_policy_.next(index, [&](CopyPath asked) {
    float slowest = 0;
    for (const WeightedRank& reader : departure.readers) {
      const auto& writing =
          states_[index_of(reader.rank)].writing[static_cast<std::size_t>(departure.lane)];
      const auto& costs = writing.stream->read_cost[index];
      slowest =
          std::max(slowest, costs[static_cast<std::size_t>(asked)].load(std::memory_order_relaxed));
    }
    return slowest;
  });
  const std::uint64_t start = ticks_now();
  if (path == CopyPath::Streamed) {
    copy_around_cache(to, from, bytes);
  } else {
    copy_bytes(to, from, bytes);
  }
  if (bytes >= kLeastMeasured) {
    copy_policy_.wrote(index, path,
                       static_cast<float>(ticks_now() - start) / static_cast<float>(bytes));
  }
  return path == CopyPath::Streamed ? Carriage::Streamed : Carriage::Cached;
}

void ShmTransport::write_entry(const Departure& departure, const WeightedRank& reader,
                               const Chunk& chunk) {
  const std::size_t index = index_of(reader.rank);
  if (states_[index].is_gone) {
    return;
  }
  Writing& writing = states_[index].writing[static_cast<std::size_t>(departure.lane)];
  Entry& entry = writing.stream->entries[writing.next % kStreamEntries];
  entry.entry_kind = chunk.kind;
  entry.place = chunk.place;
  entry.chunk_bytes = static_cast<std::uint32_t>(chunk.bytes);
  entry.carriage = chunk.carriage;
  if (chunk.kind == EntryKind::Head) {
    const MessageHeader& header = departure.header;
    entry.op_kind = header.envelope.kind;
    entry.dtype = header.envelope.dtype;
    entry.id = header.id.value;
    entry.count = header.envelope.count;
    entry.message_bytes = header.bytes;
    entry.weight = reader.weight;
    entry.name_hash = header.envelope.name_hash;
    if (entry.name_hash != 0) {
      copy_text(entry.text, header.envelope.name);
    }
    if (chunk.carriage == Carriage::Inline && header.bytes > 0) {
      std::memcpy(entry.payload.data(), departure.data, header.bytes);
    }
  }
  entry.turn.store(turn_of(writing.next, kStreamEntries), std::memory_order_release);
  ++writing.next;
  head(index).doorbell.ring();
}

bool ShmTransport::publish(Departure& departure) {
  if (!all_have_room(departure)) {
    return false;
  }
  Chunk chunk;
  chunk.kind = departure.announced ? EntryKind::Chunk : EntryKind::Head;
  chunk.bytes = next_chunk_bytes(departure);
  const auto is_claim_over = [this](const Claim& claim) { return is_over(claim); };
  PayloadPool::Block* target = nullptr;
  // Mail has one reader, who may come late: what waits for it is bounded.
  if (departure.lane == Lane::Mail && !departure.announced &&
      departure.header.bytes > kInlineBytes) {
    const std::size_t held = pool_.held_by(static_cast<int>(index_of(departure.readers[0].rank)),
                                           static_cast<std::uint8_t>(Lane::Mail), is_claim_over);
    if (held > 0 && held + departure.header.bytes > kMostMail) {
      return false;
    }
  }
  if (departure.header.bytes > kInlineBytes) {
    // Pairs do not wait for other pairs: there is no order among them.
    const std::uint32_t name =
        departure.lane == Lane::Deep ? departure.header.envelope.name_hash : 0;
    target = is_deep(departure.lane)
                 ? pool_.take_deep(chunk.bytes, departure.header.id.value, name,
                                   CallId::make(departure.first_under_way, 0).value, is_claim_over)
                 : pool_.take_slot(is_claim_over);
    if (target == nullptr) {
      return false;
    }
    chunk.place = target->place;
    chunk.carriage = copy_out(departure, target->data, chunk.bytes);
  }
  for (const WeightedRank& reader : departure.readers) {
    if (target != nullptr) {
      const std::size_t index = index_of(reader.rank);
      const auto lane = static_cast<std::uint8_t>(departure.lane);
      target->claims.push_back({.peer = static_cast<int>(index),
                                .lane = lane,
                                .entry = states_[index].writing[lane].next});
    }
    write_entry(departure, reader, chunk);
  }
  departure.announced = true;
  departure.published += chunk.bytes;
  return true;
}

bool ShmTransport::abort(Departure& departure, std::string_view reason) {
  if (departure.announced) {
    if (!all_have_room(departure)) {
      return false;
    }
    for (const WeightedRank& reader : departure.readers) {
      const std::size_t index = index_of(reader.rank);
      Writing& writing = states_[index].writing[static_cast<std::size_t>(departure.lane)];
      copy_text(writing.stream->entries[writing.next % kStreamEntries].text, reason);
      write_entry(departure, reader, {.kind = EntryKind::Abort});
    }
  }
  departure.announced = true;
  departure.published = departure.header.bytes;
  return true;
}

// ---- control messages, and other ranks' ends

std::optional<std::pair<int, ControlMessage>> ShmTransport::poll_control() {
  auto message = control_.poll();
  if (!message) {
    return std::nullopt;
  }
  return std::pair{rank_at(message->first), std::move(message->second)};
}

void ShmTransport::note_gone(std::size_t index) noexcept {
  states_[index].is_gone = true;
  control_.forget(index);
}

std::optional<std::string> ShmTransport::cause_of_death(int rank) {
  if (has_left(rank)) {
    note_gone(index_of(rank));
    return fmt::format("that rank has closed its context ({})", last_seen(rank));
  }
  if (has_died(rank)) {
    note_gone(index_of(rank));
    return fmt::format("that rank's process has ended ({})", last_seen(rank));
  }
  if (is_silent(index_of(rank))) {
    return fmt::format("{} for {:.3g} s (BLUEFOG_HEARTBEAT; {})", kSilence,
                       std::chrono::duration<double>(heartbeat_).count(), last_seen(rank));
  }
  return std::nullopt;
}

bool ShmTransport::is_silent(std::size_t index) {
  return heartbeat_.count() > 0 && index != group_->own() &&
         states_[index].silence.is_silent(group_->signs_of_life(index), heartbeat_);
}

bool ShmTransport::has_left(int rank) { return status(rank).has_left(); }

bool ShmTransport::has_died(int rank) {
  return group_->has_ended(index_of(rank)) && !has_left(rank);
}

}  // namespace bluefog::shm
