#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/buckets/windows/bucket_windows.hpp"

namespace bluefog::optimizers {

/// Adapt-then-combine without waiting, by reading: each rank publishes what it has stepped to,
/// fetches what its neighbours have published last, and averages,
///
///     ψ_i = x_i − γ d;   x_i ← w_ii ψ_i + Σ_j w_ij ψ_j,   ψ_j the last that j has published,
///
/// with weights from the round's plan; its send weights have no part. The published values are a
/// copy, written and read as a whole, so that nobody sees half a step. No rank waits for another
/// one beyond such a copy. `WinPut` says how ranks agree.
///
/// Cost per rank and round: one pass over the model for each source, one for publishing, and,
/// between hosts, a request and an answer for each source; memory of one copy of the model, and one
/// for each source (`BucketWindows`).
/// Source: BlueFog's `DistributedPullGetOptimizer`.
class PullGet final : public Algorithm {
 public:
  /// Collective. @param context, buckets outlive this object.
  /// @param neighbors every round's neighbours are among its.
  PullGet(Context& context, std::vector<Bucket>& buckets, const Schedule& neighbors);

  [[nodiscard]] std::size_t calls_due() const override { return 0; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void discard() override;

 private:
  std::vector<at::Tensor> published_;
  BucketWindows windows_;
};

}  // namespace bluefog::optimizers
