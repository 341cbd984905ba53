#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "tests/bodies/window_plans.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::testing {

inline std::shared_ptr<const NeighborPlan> ring(Context& context) {
  return std::make_shared<const NeighborPlan>(ring_plan(context));
}

/// The rank that a PeerFailure names, and its text; rank -1 for other errors and for none.
inline std::pair<int, std::string> failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const PeerFailure& e) {
    return {e.rank(), e.what()};
  } catch (const Error& e) {
    return {-1, e.what()};
  }
  return {-1, "no error"};
}

}  // namespace bluefog::testing
