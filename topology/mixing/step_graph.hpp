#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "topology/mixing/step_component.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog {

/// The graph of one step as far as somebody has asked: what the plans of a matrix or a schedule
/// have in common. Thread-safe.
class StepGraph {
 public:
  /// @param links_of a rank's part of the step, whenever it is asked for.
  explicit StepGraph(std::function<StepLinks(int)> links_of) : links_of_(std::move(links_of)) {}

  /// The component of `rank`, or null where it has more than `most` ranks. Looked for once, and
  /// kept for all of its ranks.
  [[nodiscard]] std::shared_ptr<const StepComponent> component_of(int rank, std::size_t most) const;

 private:
  struct Found {
    /// Null where there is none of up to `most` ranks.
    std::shared_ptr<const StepComponent> component;
    std::size_t most = 0;
  };

  std::function<StepLinks(int)> links_of_;
  mutable std::mutex mutex_;
  mutable std::map<int, Found> found_;
};

/// The links of a plan.
[[nodiscard]] StepLinks links_of(const NeighborPlan& plan);

}  // namespace bluefog
