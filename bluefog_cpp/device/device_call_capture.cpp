// Calls on a device that go into a CUDA graph.
#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

#include "bluefog_cpp/device/device_call.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

OpKind DeviceCall::placed(OpKind kind) const noexcept {
  return capture_ ? bluefog::captured(on_device(kind)) : on_device(kind);
}

// Its messages are those of this call, so that ranks which make another one hear of it.
void DeviceCall::describe_meeting(ExchangeSpec& spec) {
  everyone_.clear();
  incoming_.clear();
  for (int rank = 0; rank < channel_->size(); ++rank) {
    if (rank != rank_) {
      everyone_.push_back({.rank = rank});
      incoming_.push_back({.source = {.rank = rank}});
    }
  }
  outgoing_.assign(1, {.readers = everyone_});
  spec.envelope = envelope_;
  spec.outgoing = outgoing_;
  spec.incoming = incoming_;
  spec.pace = Pace::Each;
  spec.last = false;
}

void DeviceCall::finish_capture(WaitingStream waiting) {
  if (!std::exchange(is_held_back_, false)) {
    return;
  }
  const gpu::DeviceScope scope = channel_->enter();
  const auto lane = channel_->on_lane_of(capture_);
  record_streams(ready_at_wait_, waiting);
  wait_for(ready_at_wait_);
  operation_->receive(0, exchange_.bytes, {pieces_.data(), pieces_.size()});
  channel_->cuda().record(done(), channel_->stream());
  kept_ = {};  // later calls of the capture come after it
}

void DeviceCall::leave_capture() noexcept {
  try {
    const gpu::DeviceScope scope = channel_->enter();
    const auto lane = channel_->on_lane_of(capture_);
    if (channel_->cuda().capture_of(channel_->stream()).status == gpu::CaptureStatus::Active) {
      channel_->cuda().record(done(), channel_->stream());
      order_streams({});
    }
  } catch (const Error&) {  // NOLINT: the call's own error is on its way
  }
}

std::string DeviceCall::describe() const {
  return fmt::format("rank {}, {}, {}", rank_, call_text(call_index()), envelope_.describe());
}

void DeviceCall::check_capture(WaitingStream waiting) const {
  const gpu::DeviceScope scope = channel_->enter();
  for (const gpu::StreamHandle stream : streams_with(waiting)) {
    const auto [status, id] = channel_->cuda().capture_of(stream);
    if (!capture_ && status != gpu::CaptureStatus::None) {
      throw StateError(
          describe() +
          ": expected the wait for it before the capture of a CUDA graph begins on its stream, or "
          "after its end, found it in the capture");
    }
    if (capture_ && (status != gpu::CaptureStatus::Active || id != *capture_)) {
      throw StateError(
          describe() +
          ": expected the wait for it in the capture that it is part of, found it on a stream outside of that: its "
          "results come with launches of the graph, in the order of the stream");
    }
  }
}

}  // namespace bluefog
