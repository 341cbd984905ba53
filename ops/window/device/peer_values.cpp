#include "ops/window/device/peer_values.hpp"

#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/sums/cuda/device_arithmetic.hpp"
#include "ops/window/device/device_wait.hpp"

namespace bluefog::ops {

template <typename Function>
void PeerValues::on_stream(const Function& function) {
  window_.placed(call_.name(), [&] {
    const gpu::DeviceScope scope = memory_.enter();
    has_work_ = true;
    function();
  });
}

void PeerValues::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) {
    on_stream([&] { memory_.cuda().copy(to, from, bytes, memory_.stream()); });
  }
}

void PeerValues::weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                              std::size_t bytes) {
  on_stream([&] {
    cuda::launch_weighted_sum(memory_.cuda(), buffers_.sum_kernel(), dtype, out, operands, bytes,
                              memory_.stream());
  });
}

void PeerValues::zero(std::byte* data, std::size_t bytes) {
  if (bytes > 0) {
    on_stream([&] { memory_.cuda().zero(data, bytes, memory_.stream()); });
  }
}

gpu::Event PeerValues::record() {
  return window_.placed(call_.name(), [&] {
    const gpu::DeviceScope scope = memory_.enter();
    gpu::Event event = memory_.take_event();
    memory_.cuda().record(event.get(), memory_.stream());
    return event;
  });
}

void PeerValues::settle() {
  if (!has_work_) {
    return;
  }
  gpu::Event done = record();
  try {
    wait_for_device(window_, call_, DeviceWait::Work, [&] {
      const gpu::DeviceScope scope = memory_.enter();
      return memory_.cuda().has_happened(done.get());
    });
  } catch (const CudaError&) {
    throw;
  } catch (...) {  // nobody waits any more
    has_work_ = false;
    memory_.note_stuck(std::move(done));
    throw;
  }
  has_work_ = false;
}

void PeerValues::settle_quietly() noexcept {
  try {
    settle();
  } catch (...) {  // NOLINT: the call's own error is on its way
  }
}

}  // namespace bluefog::ops
