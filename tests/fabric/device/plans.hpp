#pragma once

#include <memory>
#include <utility>

#include "bluefog_cpp/context.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/mixing_matrix.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {

using Plan = std::shared_ptr<const NeighborPlan>;

inline Plan share(NeighborPlan plan) {
  return std::make_shared<const NeighborPlan>(std::move(plan));
}
inline Plan plan_of(const Context& context, const MixingMatrix& w) {
  return share(w.plan_for(context.rank()));
}
inline Plan ring(const Context& context) {
  return plan_of(context, topology::ring(context.size()));
}

/// Ranks whose devices reach each other through the host alone.
inline DeviceRanks without_nccl() { return {.reach = Reach::Host}; }

}  // namespace bluefog::testing
