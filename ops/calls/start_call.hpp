#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_call.hpp"
#include "bluefog_cpp/device/staged_buffers.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/collectives.hpp"

namespace bluefog::ops {

/// The conditions that a call sets for its way.
struct PlacementLimits {
  /// Host: the call goes through the host, whatever the context prefers.
  DeviceWay way = DeviceWay::Nccl;
  /// The answer of `Operation::partner`.
  int partner = -1;
  /// The moment from which the call's exchanges may use what has arrived.
  Consumption consumption = Consumption::AsItArrives;
};

/// The device of a call's buffers, and the streams that they are ordered on.
struct Placement {
  Device device{};
  DeviceStreams streams{};
  Consumption consumption = Consumption::AsItArrives;
  /// The capture that the streams are in.
  std::optional<std::uint64_t> capture{};
  /// The host's sides of the buffers, where the call goes through the host.
  std::shared_ptr<StagedBuffers> staged{};

  /// Places a call that has been validated. `input` and `output` become the host's sides, in the
  /// same memory, where it goes through the host.
  /// @throws CudaError, and UnsupportedError or StateError for streams that capture a CUDA graph
  ///   that the call cannot be part of: the call is refused then.
  static Placement of(Context& context, OpKind kind, ConstBufferView& input, BufferView& output,
                      const StagingRules& rules, const PlacementLimits& limits = {}) {
    Placement placement{.device = input.device,
                        .streams = {input.stream, output.stream},
                        .consumption = limits.consumption};
    if (input.device.kind != DeviceKind::Cpu) [[unlikely]] {
      placement.stage(context, kind, input, output, rules, limits);
    }
    return placement;
  }
  static Placement of(Context& context, OpKind kind, BufferView& buffer,
                      const StagingRules& rules) {
    Placement placement{.device = buffer.device, .streams = {buffer.stream, buffer.stream}};
    if (buffer.device.kind != DeviceKind::Cpu) [[unlikely]] {
      ConstBufferView input = buffer;
      placement.stage(context, kind, input, buffer, rules, {});
    }
    return placement;
  }
  /// Places a call for whose result `allocate` makes room on the input's device.
  static Placement of(Context& context, OpKind kind, ConstBufferView& input,
                      AllocateGathered& allocate) {
    Placement placement{.device = input.device, .streams = {input.stream, input.stream}};
    if (input.device.kind != DeviceKind::Cpu) [[unlikely]] {
      placement.stage_gathering(context, kind, input, allocate);
    }
    return placement;
  }

 private:
  void stage(Context& context, OpKind kind, ConstBufferView& input, BufferView& output,
             const StagingRules& rules, const PlacementLimits& limits);
  void stage_gathering(Context& context, OpKind kind, ConstBufferView& input,
                       AllocateGathered& allocate);
};

/// @throws UnsupportedError where one of the buffers is ordered by a stream that captures a CUDA
///   graph: a call that the host takes part in cannot be part of it.
/// @param call begins the message: "rank 1, win_put". @param kind of calls, in the message.
void check_no_capture(DeviceChannel& channel, std::string_view call, const ConstBufferView& input,
                      const BufferView& output,
                      std::string_view kind = "calls through the host's memory");

/// Starts a call whose buffers are on the context's device.
[[nodiscard]] Work submit_on_device(Context& context, std::shared_ptr<Operation> operation,
                                    const Placement& placement);

/// The owners of a call's buffers.
using BufferOwners = boost::container::small_vector<std::shared_ptr<const void>, 2>;

/// `part`, or a view of the same memory without its owner, which goes to `owners`.
template <typename Part>
[[nodiscard]] decltype(auto) without_owner(Part&& part, BufferOwners& owners) {
  using Plain = std::remove_cvref_t<Part>;
  if constexpr (std::is_same_v<Plain, BufferView> || std::is_same_v<Plain, ConstBufferView>) {
    Plain view(std::forward<Part>(part));
    owners.push_back(std::exchange(view.owner, nullptr));
    return view;
  } else {
    return std::forward<Part>(part);
  }
}

/// Starts the operation `Kind(parts…)`. On the CPU the buffers are kept until the call is done; on
/// a device the operation keeps them.
template <typename Kind, typename... Parts>
[[nodiscard]] Work submit_call(Context& context, const Placement& placement, Parts&&... parts) {
  Engine& engine = context.core().engine();
  if (placement.device.kind != DeviceKind::Cpu) {
    return submit_on_device(context, engine.make_operation<Kind>(std::forward<Parts>(parts)...),
                            placement);
  }
  BufferOwners owners;
  auto operation =
      engine.make_operation<Kind>(without_owner(std::forward<Parts>(parts), owners)...);
  for (auto& owner : owners) {
    operation->keep_alive(std::move(owner));
  }
  return engine.submit(std::move(operation));
}

/// Starts the call and waits for it: `submit_call` and `Work::wait` in one.
template <typename Kind, typename... Parts>
void run_call(Context& context, const Placement& placement, Parts&&... parts) {
  if (placement.device.kind == DeviceKind::Cpu) {
    Kind operation(std::forward<Parts>(parts)...);
    context.core().engine().run(operation);
  } else {
    submit_call<Kind>(context, placement, std::forward<Parts>(parts)...).wait();
  }
}

}  // namespace bluefog::ops
