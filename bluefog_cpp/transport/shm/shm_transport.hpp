#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"
#include "bluefog_cpp/transport/shm/copy_policy.hpp"
#include "bluefog_cpp/transport/shm/payload_pool.hpp"
#include "bluefog_cpp/transport/shm/region_layout.hpp"
#include "bluefog_cpp/transport/shm/share_regions.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::shm {

struct ShmOptions {
  std::size_t chunk_bytes = std::size_t{128} << 10U;
  std::size_t slots = 16;
  ShmCopy copy = ShmCopy::Auto;
  /// Set for a second transport beside one whose doorbell waiters sleep on.
  bool polled = false;

  [[nodiscard]] static ShmOptions from(const Settings& settings) {
    return {.chunk_bytes = static_cast<std::size_t>(settings.shm_chunk_bytes),
            .slots = static_cast<std::size_t>(settings.shm_slots),
            .copy = settings.shm_copy};
  }
};

/// Messages through memory that the ranks of a host share.
///
/// A rank copies a payload once into its own region, whatever the number of
/// readers, and hands each reader a descriptor through the stream of that
/// ordered pair. A reader combines straight from the writer's region and moves
/// its `consumed` count, which frees the payload when all readers have.
/// Cost per message: one copy, and one cache line per reader for up to 8 bytes.
class ShmTransport final : public Transport {
 public:
  /// @param peers all ranks of the host, rising; `own` is this rank's index among them.
  ShmTransport(std::string_view name, int size, std::vector<Peer> peers, std::size_t own,
               const ShmOptions& options);
  ~ShmTransport() override;

  /// Bytes that a region needs. Memory of regions starts zeroed.
  [[nodiscard]] static std::size_t region_bytes(std::size_t local_size, const ShmOptions& options);
  /// Writes the head of this rank's region, before peers see it.
  static void initialize(SharedRegion& region, std::size_t local_size, const ShmOptions& options);

  /// Memory for buffers that the ranks of this host reach, beside that of messages.
  [[nodiscard]] std::shared_ptr<HostMemory> make_buffer_memory() const {
    return HostMemory::above(peers_, own_);
  }

  /// Rung by peers when something has moved.
  [[nodiscard]] Doorbell& doorbell() noexcept { return head(own_).doorbell; }

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] bool reaches(int rank) const noexcept override;
  bool publish(Departure& departure) override;
  bool abort(Departure& departure, std::string_view reason) override;
  [[nodiscard]] const MessageHeader* arrived(int source, Lane lane) override;
  [[nodiscard]] std::span<const std::byte> readable(int source, Lane lane) override;
  void consume(int source, Lane lane, std::size_t bytes) override;
  [[nodiscard]] bool at_end(int source, Lane lane) const override;
  [[nodiscard]] std::optional<std::string> aborted(int source, Lane lane) override;
  void finish(int source, Lane lane) override;
  void send_control(int rank, const ControlMessage& message) override;
  [[nodiscard]] std::optional<std::pair<int, ControlMessage>> poll_control() override;
  [[nodiscard]] std::optional<std::string> cause_of_death(int rank) override;
  [[nodiscard]] bool has_died(int rank) override;
  [[nodiscard]] bool has_left(int rank) override;
  [[nodiscard]] SeenCall last_call(int rank) const override;
  [[nodiscard]] std::string last_seen(int rank) const override;
  void note_call(CallId id, OpKind kind) override;
  bool progress() override { return waiting_words_ > 0 && send_waiting_words(); }
  [[nodiscard]] bool has_pending() override { return waiting_words_ > 0; }
  [[nodiscard]] bool needs_polling() const noexcept override { return is_polled_; }

 private:
  /// This rank's side of a stream to a reader.
  struct Writing {
    Stream* stream = nullptr;
    std::uint64_t next = 0;
    /// The reader's count as it was last seen; the count itself costs a cache miss.
    std::uint64_t consumed = 0;
  };
  /// This rank's side of a stream from a writer.
  struct Reading {
    Stream* stream = nullptr;
    std::uint64_t position = 0;
    MessageHeader header{};
    std::string name{};
    const std::byte* chunk = nullptr;
    std::size_t chunk_left = 0;
    std::size_t used = 0;
    /// The time when the current chunk was handed out last.
    std::uint64_t handed_out = 0;
    Carriage carriage = Carriage::Inline;
    std::optional<std::string> abort_reason{};
    bool has_message = false;
    bool entry_open = false;
  };
  struct PeerState {
    /// The head of the peer's region.
    RegionHead* head = nullptr;
    std::array<Writing, kLaneCount> writing{};
    std::array<Reading, kLaneCount> reading{};
    std::uint64_t control_written = 0;
    std::uint64_t control_read = 0;
    /// Words that found no room.
    std::deque<ControlMessage> waiting_words{};
    bool is_gone = false;
  };

  [[nodiscard]] RegionHead& head(std::size_t index) const noexcept { return *states_[index].head; }
  [[nodiscard]] PeerBlock& block(std::size_t from, std::size_t to) const noexcept;
  [[nodiscard]] std::size_t index_of(int rank) const noexcept {
    return static_cast<std::size_t>(index_of_[static_cast<std::size_t>(rank)]);
  }
  [[nodiscard]] Reading& reading(int source, Lane lane) noexcept {
    return states_[index_of(source)].reading[static_cast<std::size_t>(lane)];
  }

  [[nodiscard]] bool has_room(std::size_t reader, std::size_t lane) noexcept;
  [[nodiscard]] bool all_have_room(const Departure& departure) noexcept;
  [[nodiscard]] bool is_over(const Claim& claim) noexcept;
  [[nodiscard]] std::size_t next_chunk_bytes(const Departure& departure) const noexcept;
  /// The place of a chunk and the way it got there.
  struct Chunk {
    EntryKind kind = EntryKind::Chunk;
    Carriage carriage = Carriage::Inline;
    std::uint64_t place = 0;
    std::size_t bytes = 0;
  };
  /// Copies the next `bytes` of a departure to `place` of this rank's region. @return the path.
  Carriage copy_out(const Departure& departure, std::uint64_t place, std::size_t bytes);
  void write_entry(const Departure& departure, const WeightedRank& reader, const Chunk& chunk);
  void note_read_cost(Lane lane, Reading& in, std::size_t bytes) noexcept;
  /// @return false if there is no room.
  bool send_word(std::size_t index, const ControlMessage& message);
  bool send_waiting_words();
  /// The next control message that the bell has told of.
  [[nodiscard]] std::optional<std::pair<int, ControlMessage>> next_control();
  void drop_waiting_words(PeerState& state) noexcept;
  bool open_next_entry(std::size_t writer, Reading& reading);
  void release_entry(std::size_t writer, Reading& reading);

  std::string name_;
  std::vector<Peer> peers_;
  std::size_t own_;
  std::vector<int> index_of_;
  RegionPlaces places_;
  std::vector<PeerState> states_;
  PayloadPool pool_;
  CopyPolicy copy_policy_;
  std::uint64_t control_heard_ = 0;
  /// The number of words that wait for room, to all peers.
  std::size_t waiting_words_ = 0;
  bool is_polled_;
};

}  // namespace bluefog::shm
