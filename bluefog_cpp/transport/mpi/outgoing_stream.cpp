#include "bluefog_cpp/transport/mpi/outgoing_stream.hpp"

#include <algorithm>
#include <utility>

namespace bluefog::mpi {

OutgoingStream::OutgoingStream(const StreamParts& parts, int rank, Lane lane)
    : parts_(parts),
      rank_(rank),
      lane_(lane),
      place_(parts.table.add(*this)),
      ring_(parts.depth),
      synchronous_every_(std::max<std::uint64_t>(parts.depth / 2, 1)) {}

void OutgoingStream::send(StagedFrame& frame) {
  ++frame.uses;
  if (has_room()) {
    push(frame);
  } else {
    waiting_.push_back(&frame);
  }
}

MPI_Request OutgoingStream::start(StagedFrame& frame) noexcept {
  MPI_Request request = MPI_REQUEST_NULL;
  const auto send = ++sent_ % synchronous_every_ == 0 ? MPI_Issend : MPI_Isend;
  const int code = send(frame.memory.data(), static_cast<int>(frame.bytes), MPI_BYTE, rank_,
                        tag_of(lane_), parts_.comm, &request);
  if (code != MPI_SUCCESS) {
    parts_.failures.on_failure(rank_, code);
    return MPI_REQUEST_NULL;
  }
  return request;
}

void OutgoingStream::push(StagedFrame& frame) noexcept {
  const MPI_Request request = start(frame);
  if (request == MPI_REQUEST_NULL) {
    parts_.pool.release(frame);
    return;
  }
  ring_[(oldest_ + running_) % ring_.size()] = {request, &frame};
  if (running_++ == 0) {
    watch_oldest();
  }
}

void OutgoingStream::watch_oldest() noexcept { parts_.table.watch(place_, ring_[oldest_].request); }

void OutgoingStream::on_ended(int code, int /*source*/, std::size_t /*bytes*/) noexcept {
  parts_.pool.release(*ring_[oldest_].frame);
  ring_[oldest_] = {};
  oldest_ = (oldest_ + 1) % ring_.size();
  if (--running_ > 0) {
    watch_oldest();
  }
  if (code != MPI_SUCCESS) {
    parts_.failures.on_failure(rank_, code);
  }
  while (!waiting_.empty() && running_ < ring_.size()) {
    StagedFrame& frame = *waiting_.front();
    waiting_.pop_front();
    push(frame);
  }
}

void OutgoingStream::note_taken(std::uint64_t messages) noexcept {
  for (; taken_ < messages && !untaken_.empty(); ++taken_) {
    untaken_.pop_front();
  }
}

bool OutgoingStream::has_untaken(std::uint32_t name_hash, CallId first) const noexcept {
  return std::ranges::any_of(untaken_, [&](const Untaken& message) {
    return message.name_hash == name_hash && message.id < first;
  });
}

void OutgoingStream::send_rest() {
  std::vector<Sending> longer(running_ + waiting_.size() + 1);
  for (std::size_t i = 0; i < running_; ++i) {
    longer[i] = ring_[(oldest_ + i) % ring_.size()];
  }
  ring_ = std::move(longer);
  oldest_ = 0;
  while (!waiting_.empty()) {
    StagedFrame& frame = *waiting_.front();
    waiting_.pop_front();
    push(frame);
  }
}

void OutgoingStream::drop_waiting() noexcept {
  for (StagedFrame* const frame : waiting_) {
    parts_.pool.release(*frame);
  }
  waiting_.clear();
}

}  // namespace bluefog::mpi
