#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "bluefog_cpp/transport/context.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "optimizers/bucket.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::optimizers {

/// What one communicating step averages over.
struct Round {
  /// This rank's part; null for algorithms that do not average with neighbours.
  std::shared_ptr<const NeighborPlan> plan;
  ops::PlanCheck check = ops::PlanCheck::Trusted;
};

/// Applies the wrapped optimizer to the parameters of one bucket: x ← x − γ d.
using StepBucket = std::function<void(const Bucket&)>;

/// What is exchanged between ranks, when, and what the result does to the parameters.
///
/// Algorithms never compute a step direction themselves: they are told how to step a bucket, and
/// call that once for each bucket and step, in the buckets' order. Every rank runs the same
/// algorithm over the same buckets, so that calls match. An exception leaves the context usable:
/// calls that other ranks make in the same round are refused here with its message.
class Algorithm {
 public:
  Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;
  virtual ~Algorithm() = default;

  /// "adapt_then_combine", …
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// True if rounds need a neighbour plan.
  [[nodiscard]] virtual bool averages_with_neighbors() const noexcept { return true; }

  /// A step that communicates.
  virtual void step(const Round& round, const StepBucket& step_bucket) = 0;

  /// A step between two communicating ones (`num_steps_per_communication` > 1).
  virtual void step_alone(const StepBucket& step_bucket) = 0;

  /// Whether the backward pass that comes next belongs to a communicating step.
  virtual void expect(bool /*communicates*/) {}

  /// Ends what is in flight; afterwards no peer's message is outstanding and the parameters hold
  /// everything that was received. This rank alone may call it.
  virtual void drain() {}

  /// Clears the gradients in the algorithm's own way. False: the wrapped optimizer may do it.
  virtual bool zero_gradients() { return false; }
};

}  // namespace bluefog::optimizers
