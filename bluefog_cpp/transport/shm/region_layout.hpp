#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/transport/doorbell.hpp"
#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/transport/shm/copy_policy.hpp"
#include "bluefog_cpp/transport/shm/shared_region.hpp"

namespace bluefog::shm {

// The memory that ranks of a host share in one context: a block of the arena with what all of them
// look at, and each rank's region with what its readers do. All ranks of a host run the same build;
// kLayoutVersion and the sizes are compared when a group is formed.

inline constexpr std::uint32_t kLayoutVersion = 5;
inline constexpr std::size_t kLine = kCacheLine;
/// Descriptors per stream; more than payload slots, so that a stream is never the bottleneck.
inline constexpr std::uint64_t kStreamEntries = 256;
inline constexpr std::uint64_t kControlEntries = 8;
/// Bytes of a message that travel in the descriptor itself.
inline constexpr std::size_t kInlineBytes = 72;

enum class EntryKind : std::uint8_t {
  /// First (and for short messages only) chunk of a message, with its header.
  Head = 0,
  Chunk = 1,
  /// The writer gave up; the text says why.
  Abort = 2,
};

/// The place of a chunk's bytes.
enum class Carriage : std::uint8_t {
  /// In the descriptor.
  Inline = 0,
  /// In the writer's region, written on one of the two paths.
  Cached = 1,
  Streamed = 2,
};

/// Descriptor of one chunk. `turn` shows the reader that the rest is valid: it
/// counts how often the ring has gone round. A message of up to 8 bytes needs
/// only the first cache line.
struct alignas(kLine) Entry {
  std::atomic<std::uint32_t> turn;
  EntryKind entry_kind;
  OpKind op_kind;
  Dtype dtype;
  Carriage carriage;
  std::uint64_t id;
  std::int64_t count;
  std::uint64_t message_bytes;
  double weight;
  /// The chunk's place, in the writer's region.
  std::uint64_t place;
  std::uint32_t chunk_bytes;
  std::uint32_t name_hash;
  std::array<std::byte, kInlineBytes> payload;
  std::array<char, kMaxNameBytes + 1> text;
};
static_assert(sizeof(Entry) == 3 * kLine && offsetof(Entry, payload) == 56);

/// Descriptors from one rank to another on one lane: single producer, single consumer.
struct Stream {
  /// Entries that the reader is done with. Written by the reader.
  alignas(kLine) std::atomic<std::uint64_t> consumed;
  /// The reader's cost of reading, in ticks per byte, by class and path; 0 while unknown.
  std::array<std::array<std::atomic<float>, kCopyPaths>, kCopyClasses> read_cost;
  alignas(kLine) std::array<Entry, kStreamEntries> entries;
};

/// One control message.
struct alignas(kLine) ControlEntry {
  std::atomic<std::uint32_t> turn;
  ControlMessage::Kind kind;
  std::uint64_t call;
  std::array<char, 488> text;
};

struct ControlStream {
  alignas(kLine) std::atomic<std::uint64_t> consumed;
  alignas(kLine) std::array<ControlEntry, kControlEntries> entries;
};

/// The places, in the region of the writer, of its streams to one reader; 0 before the first
/// message.
struct Link {
  std::array<std::atomic<std::uint64_t>, kLaneCount> streams;
  std::atomic<std::uint64_t> control;
};

/// The owner's present call, for its peers' error messages and for waits that nobody can end.
struct alignas(kLine) Status {
  /// Call and kind of the call that it began last, in one integer.
  std::atomic<std::uint64_t> begun;
  /// Its calls of all ranks before this one have ended.
  std::atomic<std::uint64_t> first_under_way;
  /// Call and rank that its only thread waits for, in one integer.
  std::atomic<std::uint64_t> wait;
  std::atomic<bool> has_left;
};

/// A rank's part of the block of a group. Processors fetch lines by twos: ranks share none.
struct alignas(2 * kLine) RankHead {
  /// Rung by peers when something has moved.
  Doorbell doorbell;
  /// Control messages sent to the owner so far, by all peers.
  alignas(kLine) std::atomic<std::uint64_t> control_bell;
  Status status;
};

/// The sizes on which ranks of a group have to agree.
struct GroupShape {
  std::uint64_t chunk_bytes = 0;
  std::uint64_t slots = 0;
  /// `Settings::heartbeat`, in nanoseconds.
  std::int64_t heartbeat_ns = 0;
};

/// Start of the block of a group.
struct GroupHead {
  std::uint32_t version;
  std::uint32_t local_size;
  GroupShape shape;
  /// Ranks that do not use the memory of the group any more.
  alignas(kLine) std::atomic<std::uint32_t> left;
};

/// The `turn` of a valid entry at `position` of a stream with `entries` entries.
constexpr std::uint32_t turn_of(std::uint64_t position, std::uint64_t entries) noexcept {
  return static_cast<std::uint32_t>(position / entries) + 1;
}

/// The places of the parts of a group's block, of `local_size` ranks.
struct GroupPlaces {
  std::size_t heads = 0;
  std::size_t tables = 0;
  /// Ordered by writer, then by reader.
  std::size_t links = 0;
  std::size_t end = 0;

  static constexpr GroupPlaces of(std::size_t local_size) noexcept {
    GroupPlaces places;
    places.heads = round_up(sizeof(GroupHead), alignof(RankHead));
    places.tables = places.heads + local_size * sizeof(RankHead);
    places.links = round_up(places.tables + local_size * sizeof(SegmentTable), kLine);
    places.end = round_up(places.links + local_size * local_size * sizeof(Link), kPage);
    return places;
  }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace bluefog::shm
