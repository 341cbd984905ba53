#pragma once

#include <boost/container/small_vector.hpp>
#include <memory>
#include <utility>

#include "bluefog_cpp/device/peer_memory.hpp"
#include "bluefog_cpp/device/staged_buffers.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog::ops {

/// What a call of a window has noted of its tensors on a device when it was made: the call comes
/// after what was on their streams by then. It works on copies of them on the host, or, where the
/// window's buffers are on devices as well, on the tensors themselves.
///
/// Used by one thread at a time.
class DeviceTensors {
 public:
  /// Through copies.
  explicit DeviceTensors(std::unique_ptr<StagedBuffers> staged) : staged_(std::move(staged)) {}
  /// As they are. @throws CudaError.
  DeviceTensors(PeerMemory& memory, gpu::StreamHandle input, gpu::StreamHandle output);

  /// Null where the call works on the tensors themselves.
  [[nodiscard]] StagedBuffers* staged() const noexcept { return staged_.get(); }

  /// Of the tensors themselves: whether the call may begin. @throws CudaError.
  [[nodiscard]] bool is_ready();

  /// After the call: whether the device uses the tensors no more. @throws CudaError.
  [[nodiscard]] bool is_over() { return !staged_ || staged_->is_over(); }
  /// Whether one of the streams that it has to order, that of somebody who waits included, goes into a
  /// CUDA graph now. By any thread at any time. @throws CudaError.
  [[nodiscard]] bool is_captured(WaitingStream waiting) const {
    return staged_ && staged_->is_captured(waiting);
  }
  /// After the call: what comes later on the streams, and on that of somebody who waits, comes after
  /// it, as it does anyhow where the host has waited for the tensors themselves. @throws CudaError.
  void order_streams(WaitingStream waiting = {}) {
    if (staged_) {
      staged_->order_streams(waiting);
    }
  }

 private:
  std::unique_ptr<StagedBuffers> staged_;
  PeerMemory* memory_ = nullptr;
  /// By stream.
  boost::container::small_vector<gpu::Event, 2> ready_;
};

}  // namespace bluefog::ops
