#include "ops/start_call.hpp"

#include <fmt/format.h>

#include <vector>

#include "bluefog_cpp/transport/cuda/staged_call.hpp"
#include "ops/validation.hpp"

namespace bluefog::ops {

void Placement::stage(Context& context, OpKind kind, ConstBufferView& input, BufferView& output,
                      const StagingRules& rules, const PlacementLimits& limits) {
  if (limits.way == DeviceWay::Nccl && context.device()->way_of(kind) == DeviceWay::Nccl) {
    return;
  }
  validate(
      context,
      [&] {
        staged =
            std::make_shared<StagedBuffers>(context.device()->staging(), input, output, rules);
      },
      limits.partner);
  input = staged->host_input();
  output = staged->host_output();
}

void Placement::stage_gathering(Context& context, OpKind kind, ConstBufferView& input,
                                AllocateGathered& allocate) {
  BufferView output{.dtype = input.dtype, .device = input.device, .stream = input.stream};
  stage(context, kind, input, output, {}, {});
  if (!staged) {
    return;
  }
  allocate = [call = where(context, kind), channel = context.device(), buffers = staged,
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
    auto call = context.engine().make_operation<StagedCall>(context.device(), std::move(operation),
                                                            placement.staged);
    (void)context.engine().submit(call);
    return Work(
        std::make_shared<StagedWork>(context.engine().shared_from_this(), std::move(call)));
  }
  std::shared_ptr<DeviceCall> call;
  validate(context, [&] {
    call = context.engine().make_operation<DeviceCall>(context.device(), context.rank(),
                                                       std::move(operation), placement.streams);
  });
  (void)context.engine().submit(call);
  return Work(std::make_shared<DeviceWork>(context.engine().shared_from_this(), context.device(),
                                           std::move(call)));
}

}  // namespace bluefog::ops
