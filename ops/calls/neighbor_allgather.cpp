#include "ops/neighbor_allgather.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/calls/exchanges/gathering.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

/// The ranks of the parts, rising: the sources, and among them this rank where `order` names it.
std::vector<int> ranks_of_parts(const NeighborPlan& plan, const std::vector<int>& order) {
  std::vector<int> ranks;
  std::ranges::transform(plan.sources, std::back_inserter(ranks), &WeightedRank::rank);
  if (std::ranges::find(order, plan.rank) != order.end()) {
    ranks.insert(std::ranges::lower_bound(ranks, plan.rank), plan.rank);
  }
  return ranks;
}

void check_order(const Context& context, const NeighborPlan& plan, const std::vector<int>& order) {
  std::vector<int> rising = order;
  std::ranges::sort(rising);
  if (!order.empty() && rising != ranks_of_parts(plan, order)) {
    throw InvalidArgument(fmt::format(
        "{}: order: expected each source of the plan, [{}], and at most this rank besides, once, "
        "found [{}]",
        where(context, OpKind::NeighborAllgather), fmt::join(ranks_of_parts(plan, {}), ", "),
        fmt::join(order, ", ")));
  }
}

void check_arguments(const Context& context, const ConstBufferView& input,
                     const AllocateGathered& allocate, const NeighborPlan* plan,
                     const std::vector<int>& order) {
  check_gathering(context, OpKind::NeighborAllgather, input, allocate);
  check_plan(context, OpKind::NeighborAllgather, plan);
  check_order(context, *plan, order);
}

GatherPlan gather_plan(const NeighborPlan& plan, const std::vector<int>& order) {
  GatherPlan gather{.sources = plan.sources, .readers = plan.destinations};
  const std::vector<int> ranks = ranks_of_parts(plan, order);
  const auto part_of = [&](int rank) {
    return std::ranges::lower_bound(ranks, rank) - ranks.begin();
  };
  if (ranks.size() > plan.sources.size()) {
    gather.own_part = part_of(plan.rank);
  }
  for (const int rank : order) {
    gather.order.push_back(static_cast<std::size_t>(part_of(rank)));
  }
  return gather;
}

const NeighborPlan* checked(const NeighborPlan& plan, const NeighborAllgatherOptions& options) {
  return options.check == PlanCheck::Checked ? &plan : nullptr;
}

}  // namespace

Work neighbor_allgather_nonblocking(Context& context, ConstBufferView input,
                                    AllocateGathered allocate,
                                    const std::shared_ptr<const NeighborPlan>& plan,
                                    const NeighborAllgatherOptions& options) {
  validate(context, [&] { check_arguments(context, input, allocate, plan.get(), options.order); });
  const Placement placement = Placement::of(context, OpKind::NeighborAllgather, input, allocate);
  return submit_call<Gathering>(
      context, placement, context, OpKind::NeighborAllgather, std::move(input), std::move(allocate),
      gather_plan(*plan, options.order), options.name, checked(*plan, options));
}

void neighbor_allgather(Context& context, ConstBufferView input, AllocateGathered allocate,
                        const std::shared_ptr<const NeighborPlan>& plan,
                        const NeighborAllgatherOptions& options) {
  validate(context, [&] { check_arguments(context, input, allocate, plan.get(), options.order); });
  const Placement placement = Placement::of(context, OpKind::NeighborAllgather, input, allocate);
  run_call<Gathering>(context, placement, context, OpKind::NeighborAllgather, std::move(input),
                      std::move(allocate), gather_plan(*plan, options.order), options.name,
                      checked(*plan, options));
}

}  // namespace bluefog::ops
