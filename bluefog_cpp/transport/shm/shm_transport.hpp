#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"
#include "bluefog_cpp/transport/shm/call_status.hpp"
#include "bluefog_cpp/transport/shm/control_streams.hpp"
#include "bluefog_cpp/transport/shm/copy_policy.hpp"
#include "bluefog_cpp/transport/shm/host_group.hpp"
#include "bluefog_cpp/transport/shm/incoming_stream.hpp"
#include "bluefog_cpp/transport/shm/payload_pool.hpp"
#include "bluefog_cpp/transport/shm/region_layout.hpp"
#include "bluefog_cpp/transport/shm/silence_watch.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::shm {

struct ShmOptions {
  std::size_t chunk_bytes = std::size_t{128} << 10U;
  std::size_t slots = 16;
  ShmCopy copy = ShmCopy::Auto;
  /// Set for a second transport beside one whose doorbell waiters sleep on.
  bool polled = false;
  /// How long a process may give no sign of life while it is waited for; zero: for ever.
  std::chrono::nanoseconds heartbeat{};

  [[nodiscard]] static ShmOptions from(const Settings& settings) {
    return {.chunk_bytes = static_cast<std::size_t>(settings.shm_chunk_bytes),
            .slots = static_cast<std::size_t>(settings.shm_slots),
            .copy = settings.shm_copy,
            .heartbeat = settings.heartbeat};
  }
  [[nodiscard]] GroupShape shape() const noexcept {
    return {.chunk_bytes = chunk_bytes, .slots = slots, .heartbeat_ns = heartbeat.count()};
  }
};

/// Messages through memory that the ranks of a host share.
///
/// A rank copies a payload once into its own region, whatever the number of
/// readers, and hands each reader a descriptor through the stream of that
/// ordered pair. A reader combines straight from the writer's region and moves
/// its `consumed` count, which frees the payload when all readers have.
/// Cost per message: one copy, and one cache line per reader for up to 8 bytes. A stream gets
/// memory with its first message, so that a rank's memory grows with its neighbours.
class ShmTransport final : public Transport {
 public:
  /// @param size the number of ranks of all hosts.
  ShmTransport(std::string_view name, int size, std::shared_ptr<HostGroup> group,
               const ShmOptions& options);
  ~ShmTransport() override;

  /// Memory for buffers that the ranks of this host reach, beside that of messages.
  [[nodiscard]] std::shared_ptr<HostMemory> make_buffer_memory() const {
    return HostMemory::of(group_);
  }

  /// Rung by peers when something has moved.
  [[nodiscard]] Doorbell& doorbell() noexcept { return head(own_).doorbell; }

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] bool reaches(int rank) const noexcept override;
  bool publish(Departure& departure) override;
  bool abort(Departure& departure, std::string_view reason) override;
  [[nodiscard]] const MessageHeader* arrived(int source, Lane lane) override {
    return reading(source, lane).arrived();
  }
  [[nodiscard]] std::span<const std::byte> readable(int source, Lane lane) override {
    return reading(source, lane).readable();
  }
  void consume(int source, Lane lane, std::size_t bytes) override {
    reading(source, lane).consume(bytes);
  }
  [[nodiscard]] bool at_end(int source, Lane lane) const override {
    return states_[index_of(source)].reading[static_cast<std::size_t>(lane)].at_end();
  }
  [[nodiscard]] std::optional<std::string> aborted(int source, Lane lane) override {
    return reading(source, lane).aborted();
  }
  void finish(int source, Lane lane) override { reading(source, lane).finish(); }
  void send_control(int rank, const ControlMessage& message) override {
    control_.send(index_of(rank), message);
  }
  [[nodiscard]] std::optional<std::pair<int, ControlMessage>> poll_control() override;
  [[nodiscard]] std::optional<std::string> cause_of_death(int rank) override;
  [[nodiscard]] bool has_died(int rank) override;
  [[nodiscard]] bool has_left(int rank) override;
  [[nodiscard]] SeenCall last_call(int rank) const override { return status(rank).last_call(); }
  [[nodiscard]] std::string last_seen(int rank) const override { return status(rank).last_seen(); }
  void note_call(CallId id, OpKind kind) override { own_status_.note_call(id, kind); }
  [[nodiscard]] std::optional<Standing> standing_of(int rank) const override {
    return status(rank).standing();
  }
  void note_end(std::uint64_t first_under_way) noexcept override {
    own_status_.note_end(first_under_way);
  }
  void note_wait(Wait wait) noexcept override { own_status_.note_wait(wait); }
  bool progress() override { return control_.has_waiting() && control_.send_waiting(); }
  [[nodiscard]] bool has_pending() override { return control_.has_waiting(); }
  [[nodiscard]] bool needs_polling() const noexcept override { return is_polled_; }

 private:
  /// This rank's side of a stream to a reader.
  struct Writing {
    /// Null before the first message, for which there seems to be no room.
    Stream* stream = nullptr;
    std::uint64_t next = 0;
    /// The reader's count as it was last seen; the count itself costs a cache miss.
    std::uint64_t consumed = std::uint64_t{0} - kStreamEntries;
  };
  struct PeerState {
    PeerState(const HostGroup& group, std::size_t index)
        : head(&group.head(index)),
          reading(streams_of(group, index, std::make_index_sequence<kLaneCount>())) {}

    template <std::size_t... kLanes>
    static std::array<IncomingStream, kLaneCount> streams_of(
        const HostGroup& group, std::size_t index, std::index_sequence<kLanes...> /*all*/) {
      return {IncomingStream(group, index, static_cast<Lane>(kLanes))...};
    }

    RankHead* head;
    std::array<Writing, kLaneCount> writing{};
    std::array<IncomingStream, kLaneCount> reading;
    SilenceWatch silence{};
    bool is_gone = false;
  };

  /// Whether the process of that rank has been silent for too long while it was looked at.
  [[nodiscard]] bool is_silent(std::size_t index);
  [[nodiscard]] RankHead& head(std::size_t index) const noexcept { return *states_[index].head; }
  [[nodiscard]] int rank_at(std::size_t index) const noexcept { return group_->ranks()[index]; }
  [[nodiscard]] std::size_t index_of(int rank) const noexcept {
    return static_cast<std::size_t>(index_of_[static_cast<std::size_t>(rank)]);
  }
  [[nodiscard]] IncomingStream& reading(int source, Lane lane) noexcept {
    return states_[index_of(source)].reading[static_cast<std::size_t>(lane)];
  }

  [[nodiscard]] CallStatus status(int rank) const noexcept {
    return CallStatus(head(index_of(rank)).status);
  }
  void note_gone(std::size_t index) noexcept;

  /// Makes the stream, where it is the first message. @throws TransportError.
  [[nodiscard]] bool has_room(std::size_t reader, std::size_t lane);
  [[nodiscard]] bool all_have_room(const Departure& departure);
  [[nodiscard]] bool is_over(const Claim& claim) noexcept;
  [[nodiscard]] std::size_t next_chunk_bytes(const Departure& departure) const noexcept;
  /// The place of a chunk and the way it got there.
  struct Chunk {
    EntryKind kind = EntryKind::Chunk;
    Carriage carriage = Carriage::Inline;
    std::uint64_t place = 0;
    std::size_t bytes = 0;
  };
  /// Copies the next `bytes` of a departure to memory of this rank's region. @return the path.
  Carriage copy_out(const Departure& departure, std::byte* to, std::size_t bytes);
  void write_entry(const Departure& departure, const WeightedRank& reader, const Chunk& chunk);

  std::string name_;
  std::shared_ptr<HostGroup> group_;
  std::size_t own_;
  std::vector<int> index_of_;
  std::vector<PeerState> states_;
  PayloadPool pool_;
  CopyPolicy copy_policy_;
  ControlStreams control_;
  CallStatus own_status_;
  bool is_polled_;
  std::chrono::nanoseconds heartbeat_;
};

}  // namespace bluefog::shm
