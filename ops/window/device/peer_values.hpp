#pragma once

#include <cstddef>
#include <span>

#include "bluefog_cpp/device/peer_memory.hpp"
#include "ops/window/device/device_buffers.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_values.hpp"

namespace bluefog::ops {

/// The values of one call in device memory, formed on the stream of the context's `PeerMemory`.
class PeerValues final : public WindowValues {
 public:
  PeerValues(const WindowIdentity& window, const DeviceBuffers& buffers, WindowCall& call)
      : window_(window), buffers_(buffers), call_(call), memory_(buffers.memory()) {}

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                    std::size_t bytes) override;
  void zero(std::byte* data, std::size_t bytes) override;
  void settle() override;
  void settle_quietly() noexcept override;

 private:
  template <typename Function>
  void on_stream(const Function& function);
  gpu::Event record();

  const WindowIdentity& window_;
  const DeviceBuffers& buffers_;
  WindowCall& call_;
  PeerMemory& memory_;
  /// Something is on the stream that nobody has waited for.
  bool has_work_ = false;
};

}  // namespace bluefog::ops
