#pragma once

#include <boost/container/small_vector.hpp>
#include <memory>
#include <utility>

#include "bluefog_cpp/device/peer_memory.hpp"
#include "bluefog_cpp/device/staged_buffers.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog::ops {

/// The state of a window call's tensors on a device, noted when the call was made: the call comes
/// after the work that was on their streams by then. It works on copies of them on the host or,
/// where the window's buffers are on devices as well, on the tensors themselves.
///
/// Used by one thread at a time.
class DeviceTensors {
 public:
  /// For a call that works on copies.
  explicit DeviceTensors(std::unique_ptr<StagedBuffers> staged) : staged_(std::move(staged)) {}
  /// For a call that works on the tensors themselves. @throws CudaError.
  DeviceTensors(PeerMemory& memory, gpu::StreamHandle input, gpu::StreamHandle output);

  /// Null where the call works on the tensors themselves.
  [[nodiscard]] StagedBuffers* staged() const noexcept { return staged_.get(); }

  /// Whether a call that works on the tensors themselves may begin. @throws CudaError.
  [[nodiscard]] bool is_ready();

  /// Whether, after the call, the device uses the tensors no more. @throws CudaError.
  [[nodiscard]] bool is_over() { return !staged_ || staged_->is_over(); }
  /// Whether a stream that this has to order, or that of somebody who waits, goes into a CUDA graph
  /// now. Any thread may ask at any time. @throws CudaError.
  [[nodiscard]] bool is_captured(WaitingStream waiting) const {
    return staged_ && staged_->is_captured(waiting);
  }
  /// Orders later work on the streams, and on that of somebody who waits, after the call, as it is
  /// anyhow where the host has waited for the tensors themselves. @throws CudaError.
  void order_streams(WaitingStream waiting = {}) {
    if (staged_) {
      staged_->order_streams(waiting);
    }
  }

 private:
  std::unique_ptr<StagedBuffers> staged_;
  PeerMemory* memory_ = nullptr;
  /// The events that a call on the tensors themselves waits for, by stream.
  boost::container::small_vector<gpu::Event, 2> ready_;
};

}  // namespace bluefog::ops
