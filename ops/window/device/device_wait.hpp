#pragma once

#include <cstdint>
#include <functional>

#include "ops/window/window_call.hpp"
#include "ops/window/window_identity.hpp"

namespace bluefog::ops {

/// The work of its device that a call waits for.
enum class DeviceWait : std::uint8_t {
  Copy,    ///< of a tensor, between it and the host
  Stream,  ///< the work on a tensor's stream before the call
  Work,    ///< of the call, on buffers
};

/// Waits until `asks`, which asks the device, says that it is done. @throws TimeoutError,
/// CudaError.
void wait_for_device(const WindowIdentity& window, WindowCall& call, DeviceWait what,
                     const std::function<bool()>& asks);

}  // namespace bluefog::ops
