#pragma once

#include <memory>

#include "tests/support/gpu/cuda_stand_in.hpp"

namespace bluefog::testing {

struct TorchPlace;

/// Torch's CUDA device `index` without a GPU: while this lives, tensors of that device lie in the
/// stand-in's memory, and torch's work on them is done by operations of one of the stand-in's
/// streams, carried out by torch's functions for the CPU. So the stand-in finds memory that calls
/// and torch use without an order.
///
/// The host waits for each operation, which real torch would not do, but the stand-in does not
/// count these waits: events alone order the operation. This waits wherever real torch would.
///
/// For programs that are linked with torch's part for the CPU alone. One for each index at a time.
class TorchDevice {
 public:
  /// @param stream torch's current one on that device, in all threads. The calling thread's current
  ///   device becomes this one.
  TorchDevice(std::shared_ptr<CudaStandIn> cuda, int index, gpu::StreamHandle stream);
  TorchDevice(const TorchDevice&) = delete;
  TorchDevice& operator=(const TorchDevice&) = delete;
  ~TorchDevice();

  /// Makes `stream` torch's current one, after the last one's work; call it while nobody uses it.
  void change_stream(gpu::StreamHandle stream);

  /// Number of times that real torch would have had the host wait for the device.
  [[nodiscard]] int host_waits() const;

 private:
  std::shared_ptr<TorchPlace> place_;
};

}  // namespace bluefog::testing
