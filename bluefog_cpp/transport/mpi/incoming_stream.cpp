#include "bluefog_cpp/transport/mpi/incoming_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/mpi/cancel_receive.hpp"

namespace bluefog::mpi {

IncomingStream::IncomingStream(const StreamParts& parts, int rank, Lane lane)
    : parts_(parts),
      rank_(rank),
      lane_(lane),
      place_(parts.table.add(*this)),
      slot_bytes_(AlignedBytes::round_up(kFrameHeadBytes + parts.chunk_bytes)),
      ring_(parts.depth) {
  for (std::size_t slot = 0; slot < ring_.size(); ++slot) {
    free_.emplace_back(slot_bytes_);
  }
  if (post_more()) {
    watch_oldest();
  }
}

bool IncomingStream::post() noexcept {
  Posted& next = ring_[posted_ % ring_.size()];
  if (free_.empty()) {
    try {
      free_.emplace_back(slot_bytes_);
    } catch (const std::bad_alloc&) {
      return false;  // what is being read gives its memory back
    }
  }
  next.memory = std::move(free_.back());
  free_.pop_back();
  next.request = MPI_REQUEST_NULL;
  const int code =
      MPI_Irecv(next.memory.data(), static_cast<int>(kFrameHeadBytes + parts_.chunk_bytes),
                MPI_BYTE, rank_, tag_of(lane_), parts_.comm, &next.request);
  if (code != MPI_SUCCESS) {
    parts_.failures.on_failure(rank_, code);
  }
  ++posted_;
  return true;
}

bool IncomingStream::post_more() noexcept {
  const auto used = [&] { return posted_ - received_ + (is_deep(lane_) ? 0 : frames_.size()); };
  while (used() < ring_.size() && post()) {
  }
  return posted_ > received_;
}

void IncomingStream::watch_oldest() noexcept {
  parts_.table.watch(place_, ring_[received_ % ring_.size()].request);
}

void IncomingStream::on_ended(int code, int /*source*/, std::size_t bytes) noexcept {
  Posted& ended = ring_[received_ % ring_.size()];
  ended.request = MPI_REQUEST_NULL;
  if (code != MPI_SUCCESS) {
    parts_.failures.on_failure(rank_, code);
    return;  // what would come after a lost frame cannot be used
  }
  try {
    free_.reserve(frames_.size() + ring_.size());  // all memory there is
    frames_.push_back({.memory = {}, .bytes = bytes});
  } catch (const std::bad_alloc&) {
    parts_.failures.on_failure(rank_, MPI_ERR_NO_MEM);
    return;
  }
  frames_.back().memory = std::move(ended.memory);
  ++received_;
  note_arrival(frames_.back());
  if (post_more()) {
    watch_oldest();
  }
}

// Notes whether a message has come as a whole. The reader finds frames that do not fit together.
void IncomingStream::note_arrival(const Frame& frame) noexcept {
  FrameHead head;
  std::memcpy(&head, frame.memory.data(), sizeof head);
  if (head.kind == FrameKind::Head) {
    coming_ = head.header.id;
    missing_ = head.header.bytes;
  }
  missing_ -= head.kind == FrameKind::Abort ? missing_
                                            : std::min<std::size_t>(missing_, head.payload_bytes);
  if (missing_ == 0) {
    whole_ = coming_;
  }
}

bool IncomingStream::open_next_frame() {
  if (frames_.empty()) {
    return false;
  }
  const Frame& frame = frames_.front();
  const std::byte* const memory = frame.memory.data();
  FrameHead head;
  std::memcpy(&head, memory, sizeof head);
  const bool is_first = !has_message_;
  if (frame.bytes < kFrameHeadBytes || frame.bytes - kFrameHeadBytes != head.payload_bytes ||
      is_first != (head.kind == FrameKind::Head) ||
      (head.kind != FrameKind::Abort &&
       head.payload_bytes > (is_first ? head.header.bytes : header_.bytes - used_))) {
    throw InternalError(fmt::format(
        "MPI transport: rank {} sent a frame of kind {} with {} bytes ({} announced) where {}",
        rank_, static_cast<unsigned>(head.kind), frame.bytes, head.payload_bytes,
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
    on_other_lane_ = head.on_other_lane;
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
  const bool was_watched = posted_ > received_;
  free_.push_back(std::move(frames_.front().memory));
  frames_.pop_front();
  if (post_more() && !was_watched) {
    watch_oldest();
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
  ++taken_;
  abort_reason_.reset();
}

bool IncomingStream::cancel() noexcept {
  (void)parts_.table.unwatch(place_);
  bool all_ended = true;
  for (std::uint64_t frame = received_; frame < posted_; ++frame) {
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
