#include "ops/allgather.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "ops/calls/exchanges/gathering.hpp"
#include "ops/calls/group.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

GatherPlan everyone(const Context& context) {
  const Group group = Group::everyone(context);
  const std::vector<WeightedRank> others(group.peers.begin(), group.peers.end());
  return {.sources = others, .readers = others, .own_part = static_cast<std::int64_t>(group.own)};
}

}  // namespace

Work allgather_nonblocking(Context& context, ConstBufferView input, AllocateGathered allocate,
                           const OpOptions& options) {
  validate(context, [&] { check_gathering(context, OpKind::Allgather, input, allocate); });
  const Placement placement = Placement::of(context, OpKind::Allgather, input, allocate);
  return submit_call<Gathering>(context, placement, context, OpKind::Allgather, std::move(input),
                                std::move(allocate), everyone(context), options.name);
}

void allgather(Context& context, ConstBufferView input, AllocateGathered allocate,
               const OpOptions& options) {
  validate(context, [&] { check_gathering(context, OpKind::Allgather, input, allocate); });
  const Placement placement = Placement::of(context, OpKind::Allgather, input, allocate);
  run_call<Gathering>(context, placement, context, OpKind::Allgather, std::move(input),
                      std::move(allocate), everyone(context), options.name);
}

void allgather_within(Context& context, std::string_view call, ConstBufferView input,
                      AllocateGathered allocate) {
  Gathering operation(context, OpKind::Agreement, std::move(input), std::move(allocate),
                      everyone(context), std::string(call));
  context.core().engine().run(operation);
}

}  // namespace bluefog::ops
