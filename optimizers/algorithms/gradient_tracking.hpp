#pragma once

#include <string>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// Gradient tracking: the local step with an estimate y of the mean gradient in place of the
/// gradient,
///
///     y⁺ = W y + g⁺ − g, first y = g;   x⁺ = W (x − γ d(y)).
///
/// Rows and columns of W sum to 1; it may change from round to round. The mean of y over ranks is
/// that of g in every step, so that with exact gradients, and SGD with or without momentum as the
/// local step, all ranks reach the minimiser of the mean objective at a fixed step size.
///
/// Gradients lie in flat buckets. For the time of the local step y is there in their place, so that
/// the wrapped optimizer sees y alone (its weight decay and moments too); afterwards they are the
/// rank's own again. A parameter without a gradient counts as zeros and is stepped by y all the
/// same. Clearing them keeps their memory; one that autograd makes anew is copied once into its
/// bucket.
///
/// Cost per rank and round: two neighbor_allreduce for each bucket; one copy of the model for W y −
/// g, which is what a checkpoint keeps, and one in place of the gradients. Source: DIGing, arXiv
/// 1607.03218, which has W x − γ y; 1805.11454.
class GradientTracking final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  GradientTracking(Context& context, std::vector<Bucket>& buckets);

  [[nodiscard]] std::size_t calls_due() const override { return 2 * buckets_.size(); }
  /// @throws UnsupportedError naming a parameter whose gradient is sparse.
  void step(const Round& round, const StepBucket& step_bucket) override;
  bool zero_gradients(bool set_to_none) override;
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  void track();
  void give_back();

  Context& context_;
  /// Rank and algorithm, for messages.
  std::string where_;
  /// W y − g; −g while a round is under way.
  std::vector<at::Tensor> carried_;
  /// y, where the gradients are.
  std::vector<BufferView> gradients_;
  NeighborAverages averages_;
  NeighborAverages gradient_averages_;
  std::vector<Work> works_;
};

}  // namespace bluefog::optimizers
