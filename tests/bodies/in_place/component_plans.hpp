#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"
#include "topology/mixing/step_graph.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::testing {

using Plan = std::shared_ptr<const NeighborPlan>;

inline constexpr auto kComponent = SynchronisationChoice::Component;
inline constexpr auto kNeighbors = SynchronisationChoice::Neighbors;

inline Ranks everywhere(int at_least = 1) {
  return {.at_least = at_least, .at_most = few(8, 4), .settings = [](Settings& settings, int) {
            settings.synchronisation = kComponent;
          }};
}

inline Plan kept(NeighborPlan plan) {
  return std::make_shared<const NeighborPlan>(std::move(plan));
}

/// Whether a call of this plan, whose step's graph is known, can be in place.
inline bool may_be_in_place(Context& context, const NeighborPlan& plan) {
  const auto component = plan.step->component_of(plan.rank, 1000);
  return context.core().shared_memory() && component->size() > 1 &&
         std::ranges::all_of(component->ranks(), [&](int rank) {
           return context.hosts().same_machine(rank, context.rank());
         });
}

inline std::uint64_t sums(Context& context) { return context.core().component_waits().sums(); }

}  // namespace bluefog::testing
