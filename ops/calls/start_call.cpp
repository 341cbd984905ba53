#include "ops/calls/start_call.hpp"

#include <fmt/format.h>

#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_work.hpp"
#include "bluefog_cpp/device/staged_call.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {

namespace {

/// The capture that both streams are in.
std::optional<std::uint64_t> find_capture(DeviceChannel& channel, std::string_view call,
                                          const DeviceStreams& streams) {
  const gpu::DeviceScope scope = channel.enter();
  const gpu::CaptureInfo first = channel.cuda().capture_of(streams[0]);
  const gpu::CaptureInfo second =
      streams[0] == streams[1] ? first : channel.cuda().capture_of(streams[1]);
  for (const gpu::CaptureInfo& info : {first, second}) {
    if (info.status == gpu::CaptureStatus::Invalidated) {
      throw StateError(fmt::format(
          "{}: the capture of a CUDA graph on its stream was spoilt by an earlier mistake", call));
    }
  }
  if (first.status != second.status || first.id != second.id) {
    throw StateError(
        fmt::format("{}: expected the streams of input and output in the same capture "
                    "of a CUDA graph, or both in none, found them apart",
                    call));
  }
  return first.status == gpu::CaptureStatus::Active ? std::optional(first.id) : std::nullopt;
}

}  // namespace

void check_no_capture(DeviceChannel& channel, std::string_view call, const ConstBufferView& input,
                      const BufferView& output, std::string_view kind) {
  if (find_capture(channel, call, {input.stream, output.stream})) {
    throw UnsupportedError(
        fmt::format("{}: its stream captures a CUDA graph, and {} cannot be part of one: expected "
                    "it before or after the capture",
                    call, kind));
  }
}

void Placement::stage(Context& context, OpKind kind, ConstBufferView& input, BufferView& output,
                      const StagingRules& rules, const PlacementLimits& limits) {
  const auto& channel = context.core().device();
  const bool by_link = limits.way != DeviceWay::Host && channel->way_of(kind) != DeviceWay::Host;
  validate(
      context,
      [&] {
        if (!by_link) {
          check_no_capture(*channel, where(context, kind), input, output);
          staged = std::make_shared<StagedBuffers>(channel->staging(), input, output, rules);
          return;
        }
        capture = find_capture(*channel, where(context, kind), streams);
        if (capture && !channel->link().can_be_replayed()) {
          throw UnsupportedError(fmt::format(
              "{}: its stream captures a CUDA graph, of which only calls by NCCL can be "
              "part, found one by another way",
              where(context, kind)));
        }
      },
      limits.partner);
  if (staged) {
    input = staged->host_input();
    output = staged->host_output();
  }
}

void Placement::stage_gathering(Context& context, OpKind kind, ConstBufferView& input,
                                AllocateGathered& allocate) {
  BufferView output{.dtype = input.dtype, .device = input.device, .stream = input.stream};
  stage(context, kind, input, output, {}, {});
  if (!staged) {
    // Memory that was just handed out is free only after the earlier work on its stream.
    allocate = [channel = context.core().device(), device = input.device,
                room = std::move(allocate)](const std::vector<std::int64_t>& counts) {
      const gpu::DeviceScope scope = channel->enter();
      BufferView found = room(counts);
      if (found.data != nullptr && found.device == device) {
        channel->follow(found.stream);
      }
      return found;
    };
    return;
  }
  allocate = [call = where(context, kind), channel = context.core().device(), buffers = staged,
              room = std::move(allocate)](const std::vector<std::int64_t>& counts) {
    const gpu::DeviceScope scope = channel->enter();  // as other calls on a device
    BufferView found = room(counts);
    if (found.device != buffers->device()) {
      throw InvalidArgument(
          fmt::format("{}: expected the allocation callback to return room on the input's device, "
                      "found it on another one",
                      call));
    }
    return found.data == nullptr ? found : buffers->replace_output(std::move(found));
  };
}

Work submit_on_device(Context& context, std::shared_ptr<Operation> operation,
                      const Placement& placement) {
  if (placement.staged) {
    auto call = context.core().engine().make_operation<StagedCall>(
        context.core().device(), std::move(operation), placement.staged);
    (void)context.core().engine().submit(call);
    return Work(
        std::make_shared<StagedWork>(context.core().engine().shared_from_this(), std::move(call)));
  }
  std::shared_ptr<DeviceCall> call;
  validate(context, [&] {
    call = context.core().engine().make_operation<DeviceCall>(
        context.core().device(), context.rank(), std::move(operation), placement.streams,
        placement.consumption, placement.capture);
  });
  auto work = std::make_shared<DeviceWork>(context.core().engine().shared_from_this(),
                                           context.core().device(), call);
  if (placement.capture) {
    work->run();
  } else {
    (void)context.core().engine().submit(std::move(call));
  }
  return Work(std::move(work));
}

}  // namespace bluefog::ops
