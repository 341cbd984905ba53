#include "ops/neighbor_allgather.hpp"

#include <utility>

#include "ops/calls/gathering.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

constexpr OpKind kKind = OpKind::NeighborAllgather;

void check_arguments(const Context& context, const ConstBufferView& input,
                     const AllocateGathered& allocate, const NeighborPlan* plan) {
  check_gathering(context, kKind, input, allocate);
  check_plan(context, kKind, plan);
}

GatherPlan gather_plan(const NeighborPlan& plan) {
  return {.sources = plan.sources, .readers = plan.destinations};
}

const NeighborPlan* checked(const NeighborPlan& plan, const NeighborAllgatherOptions& options) {
  return options.check == PlanCheck::Checked ? &plan : nullptr;
}

}  // namespace

Work neighbor_allgather_nonblocking(Context& context, ConstBufferView input,
                                    AllocateGathered allocate,
                                    const std::shared_ptr<const NeighborPlan>& plan,
                                    const NeighborAllgatherOptions& options) {
  validate(context, [&] { check_arguments(context, input, allocate, plan.get()); });
  const Placement placement = Placement::of(context, kKind, input, allocate);
  return submit_call<Gathering>(context, placement, context, kKind, std::move(input),
                                std::move(allocate), gather_plan(*plan), options.name,
                                checked(*plan, options));
}

void neighbor_allgather(Context& context, ConstBufferView input, AllocateGathered allocate,
                        const std::shared_ptr<const NeighborPlan>& plan,
                        const NeighborAllgatherOptions& options) {
  validate(context, [&] { check_arguments(context, input, allocate, plan.get()); });
  const Placement placement = Placement::of(context, kKind, input, allocate);
  run_call<Gathering>(context, placement, context, kKind, std::move(input), std::move(allocate),
                      gather_plan(*plan), options.name, checked(*plan, options));
}

}  // namespace bluefog::ops
