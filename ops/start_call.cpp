#include "ops/start_call.hpp"

#include "ops/validation.hpp"

namespace bluefog::ops {

Work submit_on_device(Context& context, std::shared_ptr<Operation> operation,
                      const Placement& placement) {
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
