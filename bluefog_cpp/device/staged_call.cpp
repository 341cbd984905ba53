#include "bluefog_cpp/device/staged_call.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::microseconds kAskPeriod{50};

}  // namespace

StagedCall::StagedCall(std::shared_ptr<DeviceChannel> channel, std::shared_ptr<Operation> operation,
                       std::shared_ptr<StagedBuffers> buffers)
    : channel_(std::move(channel)), operation_(std::move(operation)), buffers_(std::move(buffers)) {
  mark_staged();
  if (CallState::of(*operation_).is_in_place) {
    mark_in_place();
  }
}

bool StagedCall::may_begin() { return buffers_->rules().in_order || buffers_->is_here(); }

bool StagedCall::next(ExchangeSpec& spec) {
  if (!operation_->next(spec)) {
    return false;
  }
  is_in_order_ = buffers_->rules().in_order && spec.pace == Pace::Together;
  if (is_in_order_) {
    spec.supply = this;
  }
  return true;
}

void StagedCall::receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
  operation_->receive(offset, bytes, pieces);
  if (is_in_order_) {
    buffers_->bring_back(offset + bytes);
  }
}

void StagedCall::finish() {
  if (buffers_->rules().back_on_wait) {
    const std::scoped_lock lock(result_mutex_);
    if (!is_dropped_) {
      has_result_ = true;
      return;
    }
  }
  buffers_->finish();
  watch();
}

void StagedCall::take_result(WaitingStream waiting) {
  const std::scoped_lock lock(result_mutex_);
  if (has_result_) {
    bring_result_back(waiting);
  }
}

// Nobody watches the copies, since the caller does not hold the engine's mutex: the streams are
// ordered, and the copies' memory is kept until their end.
void StagedCall::bring_result_back(WaitingStream waiting) {
  try {
    buffers_->note_streams(waiting);
    buffers_->finish();
  } catch (const CudaError& error) {
    throw CudaError(
        error.code(),
        fmt::format("CUDA device {}, {}, {}: its result is on the host: {}", channel_->device(),
                    call_text(call_index()), envelope().describe(), error.what()));
  }
  has_result_ = false;
  has_ended_ = true;
}

void StagedCall::note_dropped() noexcept {
  if (!buffers_->rules().back_on_wait) {
    return;
  }
  try {
    const std::scoped_lock lock(result_mutex_);
    if (has_result_) {
      bring_result_back({});
      buffers_->order_streams();
    } else if (!std::exchange(is_dropped_, true) && !has_ended_) {
      buffers_->note_streams();
    }
  } catch (const Error&) {  // NOLINT: nobody waits for it
  }
}

// Copies that were started are not taken back: the memory that they use is kept until their end.
void StagedCall::give_up() noexcept {
  try {
    buffers_->end();
    watch();
  } catch (const Error&) {  // NOLINT: the call's own error is on its way
  }
}

void StagedCall::watch() {
  if (!std::exchange(has_ended_, true)) {
    channel_->watch({.call = call_index(),
                     .text = envelope().describe(),
                     .done = buffers_->done(),
                     .keep = buffers_});
  }
}

void StagedCall::order_streams(WaitingStream waiting) {
  if (has_ended_) {
    buffers_->order_streams(waiting);
  }
}

bool StagedCall::has_happened() {
  const gpu::DeviceScope scope = channel_->enter();
  return channel_->cuda().has_happened(buffers_->done());
}

void StagedCall::check_capture(WaitingStream waiting) const {
  if (buffers_->is_captured(waiting)) {
    throw StateError(fmt::format(
        "rank {}, {}, {}: expected the wait for it before the capture of a CUDA graph begins on its "
        "stream, or after its end, found it in the capture",
        channel_->rank(), call_text(call_index()), envelope().describe()));
  }
}

void StagedWork::wait(WaitingStream stream) {
  call_->check_capture(stream);
  try {
    engine_->wait(*call_);
  } catch (...) {
    if (Engine::is_done(*call_)) {
      end(stream);
    }
    throw;
  }
  end(stream);
}

void StagedWork::end(WaitingStream stream) {
  call_->take_result(stream);
  call_->order_streams(stream);
}

void StagedWork::synchronize() {
  wait({});
  while (!call_->has_happened()) {
    engine_->check_interrupt();
    std::this_thread::sleep_for(kAskPeriod);
  }
}

bool StagedWork::done() const noexcept { return Engine::is_done(*call_); }

}  // namespace bluefog
