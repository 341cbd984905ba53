#include "bluefog_cpp/transport/mpi/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_error.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_runtime.hpp"
#include "bluefog_cpp/bootstrap/mpi/process_failure.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::mpi {

namespace {

constexpr std::size_t kLeastChunk = std::size_t{32} << 10U;

}  // namespace

MpiTransport::MpiTransport(UniqueComm comm, const MpiTransportOptions& options)
    : options_(options),
      state_(std::make_unique<State>(options)),
      parts_{comm.get(), state_->table, state_->pool, *this, options.chunk_bytes, options.depth} {
  state_->comm = std::move(comm);
  check(MPI_Comm_rank(parts_.comm, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(parts_.comm, &size_), "MPI_Comm_size");
  state_->peers.resize(static_cast<std::size_t>(size_));
  state_->control = std::make_unique<ControlChannel>(parts_);
}

OutgoingStream& MpiTransport::outgoing(int rank, Lane lane) {
  auto& stream = peer(rank).outgoing[static_cast<std::size_t>(lane)];
  if (!stream) {
    stream = std::make_unique<OutgoingStream>(parts_, rank, lane);
  }
  return *stream;
}

IncomingStream& MpiTransport::incoming(int rank, Lane lane) {
  auto& stream = peer(rank).incoming[static_cast<std::size_t>(lane)];
  if (!stream) {
    stream = std::make_unique<IncomingStream>(parts_, rank, lane);
  }
  return *stream;
}

// ---- failures

void MpiTransport::on_failure(int rank, int code) noexcept {
  try {
    if (!is_process_failure(code)) {
      failure_code_ = code;
      return;
    }
    note_process_failure();
    std::vector<int> failed = failed_ranks(parts_.comm);
    if (failed.empty() && rank >= 0) {
      failed.push_back(rank);
    }
    for (const int gone : failed) {
      peer(gone).failure = "its process has failed (" + error_text(code) + ")";
    }
  } catch (...) {
    failure_code_ = code;
  }
}

void MpiTransport::throw_if_over() const {
  if (is_over_) {
    throw StateError(fmt::format("rank {}: MPI was finalised while the context was in use", rank_));
  }
  check(failure_code_, fmt::format("rank {}: MPI transport", rank_));
}

bool MpiTransport::is_gone(int rank) const {
  return peer(rank).failure.has_value() || peer(rank).goodbye.has_value();
}

// Whether everything has come that the peer sent before it left, as far as anybody asked for it.
bool MpiTransport::has_said_all(const PeerState& state) const {
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    if (state.incoming[lane] && state.incoming[lane]->received() < state.goodbye->counts[lane]) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> MpiTransport::cause_of_death(int rank) {
  const PeerState& state = peer(rank);
  if (state.failure) {
    return fmt::format("{} ({})", *state.failure, last_seen(rank));
  }
  if (state.goodbye && has_said_all(state)) {
    return fmt::format("that rank has closed its context ({})", last_seen(rank));
  }
  if (failure_code_ != MPI_SUCCESS) {
    return fmt::format("MPI failed: {}", error_text(failure_code_));
  }
  return std::nullopt;
}

std::string MpiTransport::last_seen(int rank) const {
  const PeerState& state = peer(rank);
  if (state.seen.call == 0) {
    return "no message of it has come yet";
  }
  return fmt::format("its last message here was of {}, {}", call_text(state.seen.call),
                     text_of(state.seen.kind));
}

// ---- writing

bool MpiTransport::all_have_room(const Departure& departure) {
  return std::ranges::all_of(departure.readers, [&](const WeightedRank& reader) {
    return is_gone(reader.rank) || outgoing(reader.rank, departure.lane).has_room();
  });
}

// A message waits for readers to take an earlier one of its name, as in shared memory. Calls that
// are under way here do not count: their readers may come only after they have got later messages.
bool MpiTransport::is_held_back(const Departure& departure) {
  const std::uint32_t name = departure.header.envelope.name_hash;
  if (departure.lane != Lane::Deep || departure.announced || name == 0) {
    return false;
  }
  const CallId first = CallId::make(departure.first_under_way, 0);
  return std::ranges::any_of(departure.readers, [&](const WeightedRank& reader) {
    return !is_gone(reader.rank) && outgoing(reader.rank, departure.lane).has_untaken(name, first);
  });
}

std::uint64_t MpiTransport::begun_on_other_lane(int rank, Lane lane) const {
  const std::optional<Lane> other = lane_beside(lane);
  const auto* const stream =
      other ? peer(rank).outgoing[static_cast<std::size_t>(*other)].get() : nullptr;
  return stream == nullptr ? 0 : stream->begun();
}

std::size_t MpiTransport::next_chunk_bytes(const Departure& departure) const noexcept {
  // Several chunks let the reader begin before the writer has ended.
  const std::size_t quarter = round_up<std::size_t>(departure.header.bytes / 4, kPage);
  const std::size_t chunk =
      std::clamp(quarter, std::min(kLeastChunk, options_.chunk_bytes), options_.chunk_bytes);
  return std::min(chunk, std::min(departure.header.bytes, departure.here) - departure.published);
}

// Readers with the same weight share one copy; only the first frame carries a weight, and what it
// says of the other lane.
void MpiTransport::send_to_readers(const Departure& departure, FrameKind kind,
                                   std::span<const std::byte> payload) {
  StagedFrame* frame = nullptr;
  double weight = 0.0;
  std::uint64_t on_other_lane = 0;
  for (const WeightedRank& reader : departure.readers) {
    if (is_gone(reader.rank)) {
      continue;
    }
    const std::uint64_t beside = begun_on_other_lane(reader.rank, departure.lane);
    const bool differs = reader.weight != weight || beside != on_other_lane;
    if (frame != nullptr && kind == FrameKind::Head && differs) {
      state_->pool.release(*frame);
      frame = nullptr;
    }
    if (frame == nullptr) {
      MessageHeader header = departure.header;
      header.weight = weight = reader.weight;
      on_other_lane = beside;
      frame = &state_->pool.stage(kind, header, payload, on_other_lane);
    }
    OutgoingStream& stream = outgoing(reader.rank, departure.lane);
    if (departure.lane == Lane::Deep && kind == FrameKind::Head) {
      stream.note_message(departure.header.id, departure.header.envelope.name_hash);
    }
    stream.send(*frame);
  }
  if (frame != nullptr) {
    state_->pool.release(*frame);
  }
}

bool MpiTransport::publish(Departure& departure) {
  throw_if_over();
  if (is_deep(departure.lane) ? is_held_back(departure) : !all_have_room(departure)) {
    return false;
  }
  const std::size_t bytes = next_chunk_bytes(departure);
  send_to_readers(departure, departure.announced ? FrameKind::Chunk : FrameKind::Head,
                  {departure.data + departure.published, bytes});
  departure.announced = true;
  departure.published += bytes;
  return true;
}

bool MpiTransport::abort(Departure& departure, std::string_view reason) {
  if (departure.announced && !is_over_) {
    if (!is_deep(departure.lane) && failure_code_ == MPI_SUCCESS && !all_have_room(departure)) {
      return false;
    }
    const std::string_view text = reason.substr(0, options_.chunk_bytes);
    send_to_readers(departure, FrameKind::Abort,
                    std::as_bytes(std::span(text.data(), text.size())));
  }
  departure.announced = true;
  departure.published = departure.header.bytes;
  return true;
}

// ---- reading

const MessageHeader* MpiTransport::arrived(int source, Lane lane) {
  if (is_over_) {
    throw_if_over();
  }
  const MessageHeader* const header = incoming(source, lane).arrived();
  if (header == nullptr) {
    throw_if_over();
    return nullptr;
  }
  PeerState& state = peer(source);
  state.seen = {.call = header->id.call(), .kind = header->envelope.kind};
  return header;
}

bool MpiTransport::has_all_before(int source, Lane lane) {
  const std::optional<Lane> other = lane_beside(lane);
  const auto* const beside =
      other ? peer(source).incoming[static_cast<std::size_t>(*other)].get() : nullptr;
  return incoming(source, lane).on_other_lane() <= (beside == nullptr ? 0 : beside->received());
}

std::span<const std::byte> MpiTransport::readable(int source, Lane lane) {
  return incoming(source, lane).readable();
}

void MpiTransport::consume(int source, Lane lane, std::size_t bytes) {
  incoming(source, lane).consume(bytes);
}

bool MpiTransport::at_end(int source, Lane lane) const {
  const auto& stream = peer(source).incoming[static_cast<std::size_t>(lane)];
  return !stream || stream->at_end();
}

std::optional<std::string> MpiTransport::aborted(int source, Lane lane) {
  return incoming(source, lane).abort_reason();
}

void MpiTransport::finish(int source, Lane lane) {
  incoming(source, lane).finish();
  if (lane == Lane::Deep) {
    send_receipt(source);
  }
}

void MpiTransport::send_receipt(int rank) {
  PeerState& state = peer(rank);
  ControlFrame receipt{.type = ControlFrame::Type::Receipt};
  receipt.counts[static_cast<std::size_t>(Lane::Deep)] = incoming(rank, Lane::Deep).taken();
  const bool is_wanted = !is_over_ && failure_code_ == MPI_SUCCESS && !is_gone(rank);
  state.is_owed_receipt = is_wanted && !state_->control->send(rank, receipt);
  owes_receipts_ = owes_receipts_ || state.is_owed_receipt;
}

// ---- control frames

void MpiTransport::send_control(int rank, const ControlMessage& message) {
  if (is_over_ || is_gone(rank)) {
    return;
  }
  ControlFrame frame{.kind = message.kind, .call = message.call};
  message.text.copy(frame.text.data(), frame.text.size() - 1);
  state_->control->send(rank, frame);
}

std::optional<std::pair<int, ControlMessage>> MpiTransport::poll_control() {
  while (auto received = state_->control->poll()) {
    const auto& [source, frame] = *received;
    PeerState& state = peer(source);
    switch (frame.type) {
      case ControlFrame::Type::Message:
        return std::pair{
            source,
            ControlMessage{.kind = frame.kind, .call = frame.call, .text = frame.text.data()}};
      case ControlFrame::Type::Receipt:
        for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
          if (auto& stream = state.outgoing[lane]) {
            stream->note_taken(frame.counts[lane]);
          }
        }
        break;
      case ControlFrame::Type::Goodbye:
        state.goodbye = frame;
        for (auto& stream : state.outgoing) {
          if (stream) {
            stream->drop_waiting();
          }
        }
        break;
    }
  }
  return std::nullopt;
}

bool MpiTransport::progress() {
  if (is_over_ || !is_running()) {
    is_over_ = true;
    return false;
  }
  int code = MPI_SUCCESS;
  bool moved = false;
  std::uint64_t received = 0;
  // Control frames are read to the end: messages that were sent before them are here, but not yet
  // seen.
  do {
    received = state_->control->received();
    moved |= state_->table.poll(code);
  } while (state_->control->received() != received && code == MPI_SUCCESS);
  if (code != MPI_SUCCESS) {
    on_failure(-1, code);
  }
  if (std::exchange(owes_receipts_, false)) {
    for (int rank = 0; rank < size_; ++rank) {
      if (peer(rank).is_owed_receipt) {
        send_receipt(rank);
      }
    }
  }
  return moved;
}

bool MpiTransport::has_pending() {
  if (is_over_) {
    return false;
  }
  const auto busy = [](const PeerState& state) {
    return !state.failure && !state.goodbye &&
           std::ranges::any_of(state.outgoing,
                               [](const auto& stream) { return stream && stream->is_busy(); });
  };
  if (!std::ranges::any_of(state_->peers, busy)) {
    return false;
  }
  progress();
  return std::ranges::any_of(state_->peers, busy);
}

bool MpiTransport::has_come(int source, Lane lane, CallId id) {
  if (is_over_ || failure_code_ != MPI_SUCCESS || is_gone(source)) {
    return true;
  }
  try {
    return incoming(source, lane).has_come(id);
  } catch (const std::bad_alloc&) {
    return true;  // `arrived` says so
  }
}

}  // namespace bluefog::mpi
