#pragma once

#include <functional>

#include "optimizers/algorithm.hpp"

namespace bluefog::optimizers {

/// The optimizer's part in an algorithm that begins a round in the backward pass, before `step`.
struct EarlyStep {
  /// The round of the step that the pass under way belongs to; null where that has to begin with
  /// the step itself. Called once a round. @throws what a step throws before it communicates.
  std::function<const Round*()> begin;
  /// The same function that `Algorithm::step` is given.
  StepBucket step_bucket;
};

}  // namespace bluefog::optimizers
