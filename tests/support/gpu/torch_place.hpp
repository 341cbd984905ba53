#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/gpu/cuda_stand_in.hpp"

/// The device and memory that the parts of torch's stand-in share.
namespace bluefog::testing {

/// One of torch's devices, and the stream that is current there.
struct TorchPlace {
  std::shared_ptr<CudaStandIn> cuda;
  int index = 0;
  gpu::StreamHandle stream = nullptr;
  std::atomic<int> host_waits{0};

  /// Calls `compute` in this thread when an operation with these accesses has its turn.
  void run(const std::string& what, const std::vector<Access>& accesses,
           const std::function<void()>& compute) const;
  /// Waits as torch waits for a stream.
  void wait();
};

/// @throws c10::Error if there is none.
[[nodiscard]] std::shared_ptr<TorchPlace> torch_place(int index);
/// Null if there is none.
[[nodiscard]] std::shared_ptr<TorchPlace> find_torch_place(int index) noexcept;

/// The device whose memory this is. @throws c10::Error for memory elsewhere.
[[nodiscard]] int device_of_memory(const void* memory);

/// A tensor in memory of its own there, its elements not set.
[[nodiscard]] at::Tensor make_tensor_on(const std::shared_ptr<TorchPlace>& place,
                                        at::IntArrayRef sizes, at::IntArrayRef strides,
                                        at::ScalarType dtype);

}  // namespace bluefog::testing
