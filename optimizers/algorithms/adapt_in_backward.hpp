#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/bucket_readiness.hpp"
#include "optimizers/buckets/gradient_hooks.hpp"
#include "optimizers/early_step.hpp"

namespace bluefog::optimizers {

/// ATC diffusion whose rounds begin in the backward pass,
///
///     x ← W (x − γ d),
///
/// bucket by bucket: each is stepped as soon as the pass has finished its last gradient and all
/// buckets before it have left, and travels while the pass goes on to the layers before. `step`
/// steps the rest, and returns when all have arrived. The results are those of `AdaptThenCombine`.
///
/// Parameters have changed by the end of `backward`: clipping and scaling come too late then, and
/// the next backward pass before `step` is refused. A bucket with a parameter that gets no gradient
/// waits for `step`, and so do those after it; so does a round before which parameters were given
/// other memory, and what a pass inside of this one reaches (a reentrant checkpoint, a hook).
/// Cost per rank and round: one neighbor_allreduce for each bucket, no memory of its own.
/// Source: as `AdaptThenCombine`; BlueFog steps in the backward pass too.
class AdaptInBackward final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  /// The parameters' gradient hooks are free (`why_not_hooked`).
  AdaptInBackward(Context& context, std::vector<Bucket>& buckets, EarlyStep early,
                  const RethrowInBackward& rethrow);

  [[nodiscard]] bool allows_other_averages() const noexcept override { return true; }
  [[nodiscard]] std::size_t calls_due() const override { return buckets_.size() - launched_; }
  [[nodiscard]] bool has_begun_round() const noexcept override { return phase_ != Phase::Idle; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void expect(bool communicates) override { communicates_ = communicates; }
  void drain() override;
  void forget_round() override;

 private:
  enum class Phase {
    /// No backward pass of this step has begun.
    Idle,
    /// One has; buckets leave.
    Backward,
    /// The step makes the whole round.
    Late,
  };

  void on_ready(const GradientArrival& arrival);
  void take_gradient(const GradientArrival& arrival);
  void refuse_compiled();
  void begin();
  void launch(const Round& round, const StepBucket& step_bucket);
  void fail_round(std::string_view reason);

  Context& context_;
  NeighborAverages averages_;
  EarlyStep early_;
  /// The round under way in `Backward`.
  const Round* round_ = nullptr;
  std::vector<Work> works_;
  BucketReadiness readiness_;
  /// Buckets that were stepped, and whose call was made.
  std::size_t launched_ = 0;
  bool communicates_ = true;
  /// The pass under way has had its error: what arrives until its end counts no more.
  bool has_failed_in_pass_ = false;
  Phase phase_ = Phase::Idle;
  GradientHooks hooks_;
};

}  // namespace bluefog::optimizers
