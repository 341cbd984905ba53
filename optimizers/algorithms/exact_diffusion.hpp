#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// Exact diffusion, also NIDS: adapt-then-combine with a correction that removes its bias,
///
///     ψ = x − γ d;   φ = ψ + x − ψ₋;   x ← Ŵ φ
///
/// with ψ₋ the previous step's ψ (first: x), W symmetric and the same in every round, and Ŵ as the
/// plan has it: ½ (I + W) for exact diffusion ("exact_diffusion"), W itself for D² ("d2"), which is
/// stable only if no eigenvalue of W is −1/3 or below.
///
/// With exact gradients, and SGD with or without momentum as the local step, all ranks reach the
/// minimiser of the mean objective at a fixed step size, however different their data are. The mean
/// over ranks of x − ψ₋ stays zero; it is the correction, and what a checkpoint keeps.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; one copy of the model.
/// Source: arXiv 1702.05122 (exact diffusion), 1803.07068 (D²).
class ExactDiffusion final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  ExactDiffusion(Context& context, std::vector<Bucket>& buckets);

  void step(const Round& round, const StepBucket& step_bucket) override;
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  NeighborAverages averages_;
  /// x − ψ₋; ψ while a round is under way.
  std::vector<at::Tensor> corrections_;
};

}  // namespace bluefog::optimizers
