#pragma once

#include "bluefog_cpp/context.hpp"
#include "ops/collectives.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {

inline NeighborPlan ring_plan(const Context& context) {
  return topology::ring(context.size()).plan_for(context.rank());
}

/// Each rank hears and is heard by all others, with equal weights.
inline NeighborPlan full_plan(const Context& context) {
  return topology::fully_connected(context.size()).plan_for(context.rank());
}

/// The sum over all ranks.
inline double total(Context& context, double value) {
  ops::allreduce(context, {.data = &value, .count = 1, .dtype = Dtype::Float64},
                 {.reduction = ops::Reduction::Sum});
  return value;
}

}  // namespace bluefog::testing
