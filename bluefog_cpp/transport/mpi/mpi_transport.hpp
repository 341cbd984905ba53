#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap/mpi/mpi_handles.hpp"
#include "bluefog_cpp/transport/mpi/control_channel.hpp"
#include "bluefog_cpp/transport/mpi/incoming_stream.hpp"
#include "bluefog_cpp/transport/mpi/outgoing_stream.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::mpi {

struct MpiTransportOptions {
  std::size_t chunk_bytes = std::size_t{60} << 10U;
  /// Frames in flight per ordered pair of ranks and lane.
  std::size_t depth = 32;
};

/// Messages between processes by MPI's point-to-point calls.
///
/// A chunk and its header travel as one MPI message. The writer sends from a copy of its own. The
/// reader combines straight from the receive buffers: `depth` of them are posted per source once
/// something is expected from it, on deep lanes as many more as it takes to hold what has come. A
/// message of the lane `Deep` waits until its readers have said that they took the last one of its
/// name, so that they hold one copy of each tensor.
/// Nothing blocks in MPI. Cost per message and reader: one copy for all readers, 192 bytes of head
/// per chunk; a short receipt on the lane `Deep`.
///
/// An MPI failure ends the calls that meet it: a process that is known to be
/// gone shows in `cause_of_death`, others as MpiError from `publish` and `arrived`.
class MpiTransport final : public Transport, private FailureSink {
 public:
  /// `comm` returns errors and belongs to this object alone.
  MpiTransport(UniqueComm comm, const MpiTransportOptions& options);
  /// Says goodbye and waits a little for what is still on its way.
  ~MpiTransport() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] bool has_stream_per_reader() const noexcept override { return true; }
  [[nodiscard]] bool reaches(int rank) const noexcept override { return rank != rank_; }
  bool publish(Departure& departure) override;
  bool abort(Departure& departure, std::string_view reason) override;
  [[nodiscard]] const MessageHeader* arrived(int source, Lane lane) override;
  [[nodiscard]] bool has_all_before(int source, Lane lane) override;
  [[nodiscard]] std::span<const std::byte> readable(int source, Lane lane) override;
  void consume(int source, Lane lane, std::size_t bytes) override;
  [[nodiscard]] bool at_end(int source, Lane lane) const override;
  [[nodiscard]] std::optional<std::string> aborted(int source, Lane lane) override;
  void finish(int source, Lane lane) override;
  void send_control(int rank, const ControlMessage& message) override;
  [[nodiscard]] std::optional<std::pair<int, ControlMessage>> poll_control() override;
  bool progress() override;
  [[nodiscard]] bool needs_polling() const noexcept override { return true; }
  [[nodiscard]] bool has_pending() override;
  [[nodiscard]] bool has_come(int source, Lane lane, CallId id) override;
  [[nodiscard]] std::optional<std::string> cause_of_death(int rank) override;
  [[nodiscard]] bool has_left(int rank) override {
    return peer(rank).goodbye.has_value() && !peer(rank).failure;
  }
  [[nodiscard]] SeenCall last_call(int rank) const override { return peer(rank).seen; }
  [[nodiscard]] std::string last_seen(int rank) const override;
  void note_call(CallId, OpKind) override {}

 private:
  struct PeerState {
    std::array<std::unique_ptr<OutgoingStream>, kLaneCount> outgoing;
    std::array<std::unique_ptr<IncomingStream>, kLaneCount> incoming;
    /// Why the rank's process is gone.
    std::optional<std::string> failure;
    std::optional<ControlFrame> goodbye;
    /// Whether the rank has yet to get a receipt for messages of it that were taken.
    bool is_owed_receipt = false;
    /// The last message of the rank that was looked at.
    SeenCall seen{};
  };
  /// All that MPI may still be using when this object goes.
  struct State {
    explicit State(const MpiTransportOptions& options) : pool(options.chunk_bytes) {}

    UniqueComm comm;
    RequestTable table;
    StagingPool pool;
    std::vector<PeerState> peers;
    std::unique_ptr<ControlChannel> control;
  };

  void on_failure(int rank, int code) noexcept override;
  void throw_if_over() const;
  [[nodiscard]] PeerState& peer(int rank) const {
    return state_->peers[static_cast<std::size_t>(rank)];
  }
  OutgoingStream& outgoing(int rank, Lane lane);
  IncomingStream& incoming(int rank, Lane lane);
  [[nodiscard]] bool is_gone(int rank) const;
  [[nodiscard]] bool has_said_all(const PeerState& state) const;
  [[nodiscard]] bool all_have_room(const Departure& departure);
  [[nodiscard]] bool is_held_back(const Departure& departure);
  void send_receipt(int rank);
  [[nodiscard]] std::size_t next_chunk_bytes(const Departure& departure) const noexcept;
  /// Frames to the rank so far on the other one of the lanes `Ordinary` and `Deep`.
  [[nodiscard]] std::uint64_t begun_on_other_lane(int rank, Lane lane) const;
  void send_to_readers(const Departure& departure, FrameKind kind,
                       std::span<const std::byte> payload);

  void say_goodbye();
  void linger();
  [[nodiscard]] bool is_quiet();

  MpiTransportOptions options_;
  int rank_ = 0;
  int size_ = 0;
  std::unique_ptr<State> state_;
  StreamParts parts_;
  bool owes_receipts_ = false;
  /// An error of MPI that is no rank's death; MPI_SUCCESS while there is none.
  int failure_code_ = MPI_SUCCESS;
  /// Whether others have finalised MPI while this object lives: nothing may be called any more.
  bool is_over_ = false;
};

}  // namespace bluefog::mpi
