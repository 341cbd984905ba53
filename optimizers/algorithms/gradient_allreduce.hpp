#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/work.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithms/gradients/gradient_means.hpp"
#include "optimizers/buckets/bucket_readiness.hpp"
#include "optimizers/buckets/gradient_hooks.hpp"

namespace bluefog::optimizers {

/// Parallel SGD: the mean of all ranks' gradients, then the local step,
///
///     g ← (1/n) Σ_j g_j;   x ← x − γ d(g).
///
/// Gradients lie in flat buckets. A bucket travels as soon as the backward pass has finished its
/// last gradient and all buckets before it have left, the last one at the end of the pass, and all
/// of them there if passes ran inside of it; `backward` returns when the means are there,
/// so that clipping and scaling between `backward` and `step` see them. A parameter without a
/// gradient on this rank counts as zeros; without one on any rank it keeps none, so that every
/// rank skips it alike. Gradients that a program sets itself count too, where the pass finds them, or
/// a step without one; one set between pass and step is a `StateError`. On a device the means are
/// there in the order of the stream; the host waits for the device only where this rank lacks a
/// gradient, once, to hear whether another one has it.
///
/// With `num_steps_per_communication` k the gradients of k backward passes add up on each rank;
/// the k-th `step` uses the mean of the sums, the others do nothing, and gradients are not cleared
/// in between.
///
/// Each backward pass of a communicating step, with all that run inside of it, is a round in which
/// all ranks take part. A gradient with a graph (`create_graph`) is refused, and so is compiled
/// autograd.
/// With a code (`GradientCode`) the mean is that of codes, or of low rank, and what they leave out
/// comes later.
///
/// Cost per rank and round: one allreduce for each bucket; as much memory as the parameters, in
/// place of the gradients. A gradient that autograd makes anew (after a `zero_grad` that drops
/// gradients) is copied once into its bucket.
/// Source: Horovod, DDP (arXiv 2006.15704); BlueFog's `DistributedGradientAllreduceOptimizer`.
class GradientAllreduce final : public Algorithm {
 public:
  /// The parameters' gradient hooks are free (`why_not_hooked`).
  /// @param context, buckets outlive this object.
  GradientAllreduce(Context& context, std::vector<Bucket>& buckets,
                    const RethrowInBackward& rethrow, const GradientCode& code = {});

  [[nodiscard]] bool averages_with_neighbors() const noexcept override { return false; }
  [[nodiscard]] std::size_t calls_due() const override;
  [[nodiscard]] bool has_begun_round() const noexcept override { return phase_ == Phase::Backward; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;
  void expect(bool communicates) override { communicates_ = communicates; }
  void drain() override;
  void forget_round() override;
  /// What codes have left.
  [[nodiscard]] NamedTensors state() const override { return means_->state(); }
  void restart() override { means_->restart(); }
  bool zero_gradients(bool set_to_none) override;

 private:
  enum class Phase {
    /// No backward pass of this step has begun.
    Idle,
    /// A backward pass is under way; buckets leave.
    Backward,
    /// The gradients are means.
    Reduced,
  };

  void on_ready(const GradientArrival& arrival);
  void enter_round(const GradientArrival& arrival);
  void take_gradient(const GradientArrival& arrival);
  void refuse_compiled();
  void fail_pass(std::string_view reason);
  void fill_missing(std::size_t bucket);
  void launch(std::size_t bucket);
  void launch_ready();
  void finish_round();
  void end_pass();
  void fail_round(std::string_view reason);
  void apply_flags();
  void check_none_given_late() const;

  Context& context_;
  /// Rank and algorithm, for messages.
  std::string where_;
  /// Made once buckets have gradients.
  std::unique_ptr<GradientMeans> means_;
  std::vector<Work> works_;
  /// Whether a gradient has arrived since the last clearing, by bucket and segment.
  std::vector<std::vector<char>> has_gradient_;
  /// The flags that left with each bucket's gradients.
  std::vector<std::vector<std::uint8_t>> own_flags_;
  /// Those without a gradient on any rank in the round that has ended.
  std::vector<const Segment*> without_gradient_;
  BucketReadiness readiness_;
  std::size_t launched_ = 0;
  bool communicates_ = true;
  /// The pass under way has had its error: what arrives until its end counts no more.
  bool has_failed_in_pass_ = false;
  /// The pass under way sends everything at its end.
  bool is_late_ = false;
  Phase phase_ = Phase::Idle;
  GradientHooks hooks_;
};

}  // namespace bluefog::optimizers
