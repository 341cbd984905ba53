#include "ops/window/device/window_tensors.hpp"

#include <fmt/format.h>

#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/window/device/device_wait.hpp"
#include "ops/window/device/peer_values.hpp"

namespace bluefog::ops {
namespace {

/// Ends what was staged for a call that has failed: the call's own error is on its way.
void end_quietly(StagedBuffers& staged) noexcept {
  try {
    staged.end();
  } catch (const Error&) {  // NOLINT: see above
  }
}

}  // namespace

std::shared_ptr<DeviceTensors> WindowTensors::note(std::string_view call,
                                                   const ConstBufferView& input,
                                                   const BufferView& output,
                                                   StagingRules rules) const {
  if (input.device.kind == DeviceKind::Cpu) {
    return nullptr;
  }
  auto staging = window_.context().core().device()->staging();
  if (!staging || (buffers_.are_used() && buffers_.memory().has_left())) {
    throw StateError(fmt::format("{}: the context is closed", window_.where(call)));
  }
  return window_.placed(call, [&] {
    DeviceChannel& channel = *window_.context().core().device();
    if (buffers_.are_used()) {
      check_no_capture(channel, window_.where(call), input, output, "calls of windows");
      return std::make_shared<DeviceTensors>(buffers_.memory(), input.stream, output.stream);
    }
    check_no_capture(channel, window_.where(call), input, output);
    return std::make_shared<DeviceTensors>(
        std::make_unique<StagedBuffers>(std::move(staging), input, output, rules));
  });
}

void WindowTensors::on_copy(WindowCall& call, StagedBuffers& staged, const ValueBody& body) const {
  try {
    window_.placed(call.name(), [&] { staged.begin(); });
    wait_for_device(window_, call, DeviceWait::Copy, [&staged] { return staged.is_here(); });
    body(static_cast<std::byte*>(staged.host_output().data), nullptr);
    window_.placed(call.name(), [&] { staged.finish(); });
  } catch (...) {
    end_quietly(staged);
    throw;
  }
}

void WindowTensors::on_device(WindowCall& call, DeviceTensors* tensors, std::byte* data,
                              const ValueBody& body) const {
  if (tensors != nullptr) {
    // Before a lock is taken: nobody else waits for what the caller's stream still has to do.
    wait_for_device(window_, call, DeviceWait::Stream, [tensors] { return tensors->is_ready(); });
  }
  PeerValues values(window_, buffers_, call);
  body(data, &values);
  values.settle();
}

void WindowTensors::order_streams(DeviceTensors* tensors) {
  if (tensors != nullptr) {
    tensors->order_streams();
  }
}

}  // namespace bluefog::ops
