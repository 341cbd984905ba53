#include "bluefog_cpp/transport/shm/shm_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/base/ticks.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/shm/shared_text.hpp"

namespace bluefog::shm {
namespace {

constexpr std::size_t kLeastChunk = std::size_t{64} << 10U;
constexpr std::size_t kDeepChunk = std::size_t{8} << 20U;
/// Mail that one reader has not taken; a single message may be longer.
constexpr std::size_t kMostMail = std::size_t{64} << 20U;
/// The least measured chunk: shorter ones say little about the cost of a byte.
constexpr std::size_t kLeastMeasured = 4096;
/// The number of descriptors without payload that a reader takes before it tells the writer.
constexpr std::uint64_t kInlineRelease = kStreamEntries / 4;

}  // namespace

Stream ShmTransport::no_stream_{};

ShmTransport::ShmTransport(std::string_view name, int size, std::shared_ptr<HostGroup> group,
                           const ShmOptions& options)
    : name_(name),
      group_(std::move(group)),
      own_(group_->own()),
      index_of_(static_cast<std::size_t>(size), -1),
      states_(group_->size()),
      pool_(group_->region(own_), options.chunk_bytes, options.slots),
      copy_policy_(options.copy),
      is_polled_(options.polled) {
  for (std::size_t i = 0; i < group_->size(); ++i) {
    index_of_[static_cast<std::size_t>(rank_at(i))] = static_cast<int>(i);
    states_[i].head = &group_->head(i);
  }
}

ShmTransport::~ShmTransport() {
  head(own_).status.has_left.store(true, std::memory_order_seq_cst);
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
    // Words about earlier calls have to be there before messages of later ones.
    return states_[index].waiting_words.empty() &&
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

// ---- reading

bool ShmTransport::find_first_entry(int source, Lane lane) {
  Reading& in = reading(source, lane);
  if (in.stream != &no_stream_) {
    return false;
  }
  const std::size_t writer = index_of(source);
  const auto index = static_cast<std::size_t>(lane);
  auto* const found = group_->find<Stream>(writer, group_->link(writer, own_).streams[index]);
  if (found == nullptr) {
    return false;
  }
  in.stream = found;
  return has_entry(in);
}

const MessageHeader* ShmTransport::arrived(int source, Lane lane) {
  Reading& in = reading(source, lane);
  if (in.has_message) {
    return &in.header;
  }
  if (!has_entry(in) && !find_first_entry(source, lane)) {
    return nullptr;
  }
  const Entry& entry = in.stream->entries[in.position % kStreamEntries];
  in.header.id.value = entry.id;
  in.header.bytes = entry.message_bytes;
  in.header.weight = entry.weight;
  in.header.envelope.count = entry.count;
  in.header.envelope.name_hash = entry.name_hash;
  in.header.envelope.kind = entry.op_kind;
  in.header.envelope.dtype = entry.dtype;
  in.header.envelope.name = {};
  if (entry.name_hash != 0) {
    in.name.assign(text_of(entry.text));
    in.header.envelope.name = in.name;
  }
  in.has_message = true;
  in.used = 0;
  open_next_entry(index_of(source), in);
  return &in.header;
}

bool ShmTransport::open_next_entry(std::size_t writer, Reading& in) {
  if (!has_entry(in)) {
    return false;
  }
  const Entry& entry = in.stream->entries[in.position % kStreamEntries];
  in.entry_open = true;
  if (entry.entry_kind == EntryKind::Abort) {
    in.abort_reason.emplace(text_of(entry.text));
    release_entry(writer, in);
    return false;
  }
  const bool is_here = entry.carriage == Carriage::Inline && entry.chunk_bytes <= kInlineBytes &&
                       entry.chunk_bytes <= in.header.bytes - in.used;
  in.carriage = entry.carriage;
  in.chunk = is_here ? entry.payload.data() : find_chunk(writer, in, entry);
  in.chunk_left = entry.chunk_bytes;
  return true;
}

const std::byte* ShmTransport::find_chunk(std::size_t writer, const Reading& in,
                                          const Entry& entry) const {
  const std::byte* const chunk = entry.carriage == Carriage::Inline
                                     ? nullptr
                                     : group_->region(writer).find(entry.place, entry.chunk_bytes);
  if (chunk == nullptr || entry.chunk_bytes > in.header.bytes - in.used) {
    throw InternalError(fmt::format(
        "shared memory: rank {} announced a chunk of {} bytes at {} where {} bytes were missing",
        rank_at(writer), entry.chunk_bytes, entry.place, in.header.bytes - in.used));
  }
  return chunk;
}

void ShmTransport::release_entry(std::size_t writer, Reading& in) {
  in.entry_open = false;
  ++in.position;
  in.stream->consumed.store(in.position, std::memory_order_release);
  // A descriptor without payload frees nothing but its own place, of which the stream has many.
  if (in.carriage != Carriage::Inline || in.position % kInlineRelease == 0) {
    head(writer).doorbell.ring();
  }
}

std::span<const std::byte> ShmTransport::readable(int source, Lane lane) {
  Reading& in = reading(source, lane);
  if (in.chunk_left == 0 && in.used < in.header.bytes && !in.entry_open &&
      !in.abort_reason.has_value()) {
    open_next_entry(index_of(source), in);
  }
  if (in.chunk_left >= kLeastMeasured) {
    in.handed_out = ticks_now();
  }
  return {in.chunk, in.chunk_left};
}

void ShmTransport::consume(int source, Lane lane, std::size_t bytes) {
  Reading& in = reading(source, lane);
  if (bytes >= kLeastMeasured) {
    note_read_cost(lane, in, bytes);
  }
  in.chunk += bytes;
  in.chunk_left -= bytes;
  in.used += bytes;
  if (in.chunk_left == 0 && in.entry_open) {
    release_entry(index_of(source), in);
  }
}

void ShmTransport::note_read_cost(Lane lane, Reading& in, std::size_t bytes) noexcept {
  auto& costs = in.stream->read_cost[copy_class(lane, in.header.bytes)];
  auto& cost = costs[static_cast<std::size_t>(
      in.carriage == Carriage::Streamed ? CopyPath::Streamed : CopyPath::Cached)];
  const float sample = static_cast<float>(ticks_now() - in.handed_out) / static_cast<float>(bytes);
  cost.store(updated_cost(cost.load(std::memory_order_relaxed), sample), std::memory_order_relaxed);
}

bool ShmTransport::at_end(int source, Lane lane) const {
  const Reading& in = states_[index_of(source)].reading[static_cast<std::size_t>(lane)];
  return in.used == in.header.bytes;
}

std::optional<std::string> ShmTransport::aborted(int source, Lane lane) {
  return reading(source, lane).abort_reason;
}

void ShmTransport::finish(int source, Lane lane) {
  Reading& in = reading(source, lane);
  if (in.entry_open) {
    release_entry(index_of(source), in);
  }
  in.has_message = false;
  in.abort_reason.reset();
}

}  // namespace bluefog::shm
