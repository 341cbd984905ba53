#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "optimizers/averaging.hpp"
#include "optimizers/bucket.hpp"
#include "optimizers/late_rank.hpp"
#include "optimizers/parameter.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::optimizers {

/// The ranks and weights that one communicating step averages over.
struct Round {
  /// This rank's part; null for algorithms that do not average with neighbours.
  std::shared_ptr<const NeighborPlan> plan;
  ops::PlanCheck check = ops::PlanCheck::Trusted;  ///< whether ranks compare their plans
  std::int64_t index = 0;                          ///< rounds before this one
  Averaging averaging = Averaging::Neighbors;      ///< the ranks that are averaged over
};

/// Applies the wrapped optimizer to the parameters of one bucket: x ← x − γ d.
using StepBucket = std::function<void(const Bucket&)>;

/// An algorithm says what ranks exchange, when, and what the result does to the parameters.
///
/// Algorithms never compute a step direction themselves: they are told how to step a bucket, and
/// call that once for each bucket and step, in the buckets' order (StateError otherwise). Stepping
/// the first one may step all of them (`Stepping::Whole`). Every rank runs the same algorithm over
/// the same buckets, so that calls match. An exception leaves the context usable: calls that other ranks make in the
/// same round are refused here with its message.
class Algorithm {
 public:
  /// An algorithm over the parameters of `buckets`, which outlive this object.
  explicit Algorithm(std::vector<Bucket>& buckets) : buckets_(buckets) {}
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;
  virtual ~Algorithm() = default;

  /// True if rounds need a neighbour plan.
  [[nodiscard]] virtual bool averages_with_neighbors() const noexcept { return true; }

  /// True if rounds may average over others than the neighbours.
  [[nodiscard]] virtual bool allows_other_averages() const noexcept { return false; }

  /// Calls that the next `step` makes on the context: as many are refused if it cannot be made.
  [[nodiscard]] virtual std::size_t calls_due() const { return buckets_.size(); }
  /// `then` is called when a round has failed before its step, in the backward pass, with all of
  /// its calls made or refused.
  void when_round_fails(std::function<void()> then) { on_failed_round_ = std::move(then); }

  /// Whether the last backward pass has failed, and with it the step that would follow it: that one
  /// has been counted, and its calls were made or refused. Until the next backward pass.
  [[nodiscard]] bool has_lost_step() const noexcept { return has_lost_step_; }
  /// Makes `has_lost_step` false: another step begins.
  void forget_lost_step() noexcept { has_lost_step_ = false; }

  /// Whether a backward pass has begun a round that waits for its step.
  [[nodiscard]] virtual bool has_begun_round() const noexcept { return false; }
  /// Forgets it; its other calls have been refused. Afterwards nothing of it writes into parameters
  /// or gradients.
  virtual void forget_round() {}

  /// A step that communicates.
  virtual void step(const Round& round, const StepBucket& step_bucket) = 0;

  /// A step between two communicating ones (`num_steps_per_communication` > 1).
  virtual void step_alone(const StepBucket& step_bucket) {
    for (const Bucket& bucket : buckets_) {
      step_bucket(bucket);
    }
  }

  /// Whether the backward pass that comes next belongs to a communicating step.
  virtual void expect(bool /*communicates*/) {}

  /// Ends what is in flight; afterwards no peer's message is outstanding and the parameters hold
  /// everything that was received. This rank alone may call it.
  virtual void drain() {}

  /// In place of `drain`, when the parameters have been set to other values: what is in flight must
  /// not reach them.
  virtual void discard() { drain(); }

  /// Clears the gradients in the algorithm's own way: to none, or to zeros. False: the wrapped
  /// optimizer may do it.
  virtual bool zero_gradients(bool /*set_to_none*/) { return false; }

  /// The values that it carries from one step to the next, beside the parameters: flat, one or more
  /// per bucket, the algorithm's own memory. Writing it puts the algorithm where it was read.
  [[nodiscard]] virtual NamedTensors state() const { return {}; }

  /// The neighbours whose values came late, where rounds go on without waiting for all of them.
  [[nodiscard]] virtual std::vector<LateRank> late_ranks() const { return {}; }

  /// Forgets all earlier steps: the next one is a first one. All ranks do it between the same two.
  virtual void restart() {}

  /// `state` has been set to what was saved, and the counts of steps and rounds with it.
  virtual void resumed() {}

 protected:
  /// Notes that a round has failed before its step, with all of its calls made or refused: makes
  /// `has_lost_step` true, and calls what `when_round_fails` was given.
  void note_failed_round() {
    if (on_failed_round_) {
      on_failed_round_();
    }
    has_lost_step_ = true;
  }

  std::vector<Bucket>& buckets_;  ///< all parameters that take part, the same on all ranks

 private:
  std::function<void()> on_failed_round_;
  bool has_lost_step_ = false;
};

}  // namespace bluefog::optimizers
