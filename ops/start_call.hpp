#pragma once

#include <memory>
#include <utility>

#include "bluefog_cpp/base/buffer_view.hpp"
#include "bluefog_cpp/transport/context.hpp"
#include "bluefog_cpp/transport/nccl/device_call.hpp"
#include "bluefog_cpp/transport/work.hpp"

namespace bluefog::ops {

/// Where a call's buffers are, and the streams that they are ordered on.
struct Placement {
  Device device{};
  DeviceStreams streams{};

  static Placement of(const ConstBufferView& input, const ConstBufferView& output) {
    return {.device = input.device, .streams = {input.stream, output.stream}};
  }
  static Placement of(const ConstBufferView& buffer) { return of(buffer, buffer); }
};

/// Starts a call whose buffers are on the context's device.
[[nodiscard]] Work submit_on_device(Context& context, std::shared_ptr<Operation> operation,
                                    const Placement& placement);

/// Starts the operation `Kind(parts…)`.
template <typename Kind, typename... Parts>
[[nodiscard]] Work submit_call(Context& context, const Placement& placement, Parts&&... parts) {
  auto operation = context.engine().make_operation<Kind>(std::forward<Parts>(parts)...);
  return placement.device.kind == DeviceKind::Cpu
             ? context.engine().submit(std::move(operation))
             : submit_on_device(context, std::move(operation), placement);
}

/// As `submit_call` and `Work::wait`.
template <typename Kind, typename... Parts>
void run_call(Context& context, const Placement& placement, Parts&&... parts) {
  if (placement.device.kind == DeviceKind::Cpu) {
    Kind operation(std::forward<Parts>(parts)...);
    context.engine().run(operation);
  } else {
    submit_call<Kind>(context, placement, std::forward<Parts>(parts)...).wait();
  }
}

}  // namespace bluefog::ops
