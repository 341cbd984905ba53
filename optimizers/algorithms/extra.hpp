#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// EXTRA: decentralized gradient descent without its bias,
///
///     x² = (I + W) x¹ − ½ (I + W) x⁰ − γ (d¹ − d⁰),   first x¹ = W x⁰ − γ d⁰,
///
/// computed as the same sequence of
///
///     x⁺ = W x − γ d(x) − s;   s⁺ = s + ½ (x − W x),   s⁰ = 0,
///
/// whose s a checkpoint keeps. W is symmetric, with no eigenvalue −1, and the same in every round.
/// The average of x travels while the local step is computed. With exact gradients, and SGD with or
/// without momentum as the local step, all ranks reach the minimiser of the mean objective at a
/// fixed step size; the largest stable one is smaller than that of exact diffusion. The mean of s
/// over ranks stays zero.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; three copies of the model.
/// Source: arXiv 1404.6264, equation 2.13 with W̃ = ½ (I + W).
class Extra final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  Extra(Context& context, std::vector<Bucket>& buckets);

  void step(const Round& round, const StepBucket& step_bucket) override;
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  Context& context_;
  /// x at the start of the step, W x, and s.
  std::vector<at::Tensor> sent_;
  std::vector<at::Tensor> received_;
  std::vector<at::Tensor> sums_;
  std::vector<BufferView> received_views_;
  NeighborAverages averages_;
  std::vector<Work> works_;
};

}  // namespace bluefog::optimizers
