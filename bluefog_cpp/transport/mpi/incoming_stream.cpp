#include "bluefog_cpp/transport/mpi/incoming_stream.hpp"

#include <fmt/format.h>

#include <cstring>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/mpi/cancel_receive.hpp"

namespace bluefog::mpi {

IncomingStream::IncomingStream(const StreamParts& parts, int rank, Lane lane)
    : parts_(parts),
      rank_(rank),
      lane_(lane),
      place_(parts.table.add(*this)),
      slot_bytes_(AlignedBytes::round_up(kFrameHeadBytes + parts.chunk_bytes)),
      memory_(slot_bytes_ * parts.depth),
      ring_(parts.depth) {
  for (std::size_t slot = 0; slot < ring_.size(); ++slot) {
    post(slot);
  }
  parts_.table.watch(place_, ring_[0].request);
}

void IncomingStream::post(std::size_t slot) noexcept {
  ring_[slot].request = MPI_REQUEST_NULL;
  const int code =
      MPI_Irecv(memory_of(slot), static_cast<int>(kFrameHeadBytes + parts_.chunk_bytes), MPI_BYTE,
                rank_, tag_of(lane_), parts_.comm, &ring_[slot].request);
  if (code != MPI_SUCCESS) {
    parts_.failures.on_failure(rank_, code);
  }
}

void IncomingStream::on_ended(int code, int /*source*/, std::size_t bytes) noexcept {
  Slot& slot = ring_[received_ % ring_.size()];
  slot.request = MPI_REQUEST_NULL;
  if (code != MPI_SUCCESS) {
    parts_.failures.on_failure(rank_, code);
    return;  // what would come after a lost frame cannot be used
  }
  slot.bytes = bytes;
  ++received_;
  if (received_ - read_ < ring_.size()) {
    parts_.table.watch(place_, ring_[received_ % ring_.size()].request);
  }
}

bool IncomingStream::open_next_frame() {
  if (read_ == received_) {
    return false;
  }
  const Slot& slot = ring_[read_ % ring_.size()];
  const std::byte* const memory = memory_of(read_ % ring_.size());
  FrameHead head;
  std::memcpy(&head, memory, sizeof head);
  const bool is_first = !has_message_;
  if (slot.bytes < kFrameHeadBytes || slot.bytes - kFrameHeadBytes != head.payload_bytes ||
      is_first != (head.kind == FrameKind::Head) ||
      (head.kind != FrameKind::Abort &&
       head.payload_bytes > (is_first ? head.header.bytes : header_.bytes - used_))) {
    throw InternalError(fmt::format(
        "MPI transport: rank {} sent a frame of kind {} with {} bytes ({} announced) where {}",
        rank_, static_cast<unsigned>(head.kind), slot.bytes, head.payload_bytes,
        is_first ? std::string("a new message was expected")
                 : fmt::format("{} bytes were missing", header_.bytes - used_)));
  }
  frame_open_ = true;
  const std::byte* const payload = memory + kFrameHeadBytes;
  if (head.kind == FrameKind::Abort) {
    abort_reason_.emplace(reinterpret_cast<const char*>(payload), head.payload_bytes);
    close_frame();
    return false;
  }
  if (is_first) {
    header_ = head.header;
    name_.assign(head.name.data(), ::strnlen(head.name.data(), head.name.size()));
    header_.envelope.name = name_;
    has_message_ = true;
    used_ = 0;
  }
  chunk_ = payload;
  chunk_left_ = head.payload_bytes;
  return true;
}

void IncomingStream::close_frame() noexcept {
  frame_open_ = false;
  const bool was_full = received_ - read_ == ring_.size();
  post(read_ % ring_.size());
  ++read_;
  if (was_full) {
    parts_.table.watch(place_, ring_[received_ % ring_.size()].request);
  }
}

const MessageHeader* IncomingStream::arrived() {
  if (!has_message_ && !open_next_frame()) {
    return nullptr;
  }
  return &header_;
}

std::span<const std::byte> IncomingStream::readable() {
  if (chunk_left_ == 0 && !frame_open_ && used_ < header_.bytes && !abort_reason_) {
    open_next_frame();
  }
  return {chunk_, chunk_left_};
}

void IncomingStream::consume(std::size_t bytes) {
  chunk_ += bytes;
  chunk_left_ -= bytes;
  used_ += bytes;
  if (chunk_left_ == 0 && frame_open_) {
    close_frame();
  }
}

void IncomingStream::finish() {
  chunk_left_ = 0;
  if (frame_open_) {
    close_frame();
  }
  has_message_ = false;
  abort_reason_.reset();
}

bool IncomingStream::cancel() noexcept {
  (void)parts_.table.unwatch(place_);
  bool all_ended = true;
  const std::uint64_t posted_end = read_ + ring_.size();
  for (std::uint64_t frame = received_; frame < posted_end; ++frame) {
    MPI_Request& request = ring_[frame % ring_.size()].request;
    if (request == MPI_REQUEST_NULL) {
      continue;
    }
    const CancelOutcome outcome = cancel_receive(request);
    all_ended = all_ended && outcome != CancelOutcome::Running;
    received_ += outcome == CancelOutcome::Received ? 1 : 0;
  }
  return all_ended;
}

}  // namespace bluefog::mpi
