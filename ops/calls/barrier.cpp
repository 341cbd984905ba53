#include "ops/barrier.hpp"

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/engine/barrier_operation.hpp"

namespace bluefog::ops {

Work barrier_nonblocking(Context& context) {
  return context.core().engine().submit(context.core().engine().make_operation<BarrierOperation>(
      OpKind::Barrier, context.rank(), context.size()));
}

void barrier(Context& context) {
  BarrierOperation operation(OpKind::Barrier, context.rank(), context.size());
  context.core().engine().run(operation);
}

}  // namespace bluefog::ops
