#pragma once

#include <cstddef>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// Stochastic gradient push (SGP): averages over a directed graph of which only the columns sum to
/// 1,
///
///     x ← P (x − γ d(z));   w ← P w;   z = x / w,   first w = 1, x = z,
///
/// with P column-stochastic: each rank splits what it has among those that it sends to, and need
/// not know how many hear them. P may change from round to round. The parameters that the model
/// sees are z; the local step is taken at z. Σ w = n always, and without steps z reaches the mean
/// of the ranks' first values, where x and plain averages with an unbalanced graph do not.
///
/// A bucket's w travels as one more element of the same call. It is all that a checkpoint keeps:
/// x = w z.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; one copy of the model.
/// Parameters are of float32 or float64: w needs as many digits.
/// Source: arXiv 1811.10792, algorithm 1.
class PushSum final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  PushSum(Context& context, std::vector<Bucket>& buckets);

  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;
  /// "weight of bucket 0", …
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  void leave_step_for_later();
  void show_quotients();

  /// Each bucket's x, then its w; and w alone, in the same memory.
  std::vector<at::Tensor> sums_;
  std::vector<at::Tensor> weights_;
  NeighborAverages averages_;
};

}  // namespace bluefog::optimizers
