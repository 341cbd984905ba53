#include "bluefog_cpp/transport/barrier_operation.hpp"
#include "ops/collectives.hpp"

namespace bluefog::ops {

Work barrier_nonblocking(Context& context) {
  return context.engine().submit(context.engine().make_operation<BarrierOperation>(
      OpKind::Barrier, context.rank(), context.size()));
}

void barrier(Context& context) {
  BarrierOperation operation(OpKind::Barrier, context.rank(), context.size());
  context.engine().run(operation);
}

}  // namespace bluefog::ops
