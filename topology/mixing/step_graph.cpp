#include "topology/mixing/step_graph.hpp"

namespace bluefog {

std::shared_ptr<const StepComponent> StepGraph::component_of(int rank, std::size_t most) const {
  const std::lock_guard lock(mutex_);
  const auto known = found_.find(rank);
  if (known != found_.end()) {
    const Found& found = known->second;
    if (found.component && found.component->size() <= most) {
      return found.component;
    }
    if (found.component || found.most >= most) {
      return nullptr;
    }
  }
  auto component = StepComponent::around(rank, most, links_of_);
  if (!component) {
    found_[rank] = {.component = nullptr, .most = most};
    return nullptr;
  }
  for (const int member : component->ranks()) {
    found_[member] = {.component = component, .most = most};
  }
  return component;
}

StepLinks links_of(const NeighborPlan& plan) {
  StepLinks links;
  for (const WeightedRank& source : plan.sources) {
    links.sources.push_back(source.rank);
  }
  for (const WeightedRank& destination : plan.destinations) {
    links.destinations.push_back(destination.rank);
  }
  return links;
}

}  // namespace bluefog
