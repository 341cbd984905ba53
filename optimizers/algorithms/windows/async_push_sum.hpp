#pragma once

#include <cstddef>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/buckets/windows/bucket_windows.hpp"

namespace bluefog::optimizers {

/// Stochastic gradient push without waiting: each rank steps, adds shares of its sum x and weight w
/// to its neighbours' windows, and takes in what has come,
///
///     x_i ← x_i − γ d(z_i);   b_r(i) += p_ri (x_i, w_i) for r in i's destinations;
///     (x_i, w_i) ← p_ii (x_i, w_i) + Σ_j b_i(j), b_i(j) ← 0;   z_i = x_i / w_i,
///
/// first w = 1, x = z, P column-stochastic, with `PushSum`'s rules for schedules and plans. No rank
/// waits for another one. Shares on their way lie in buffers: Σ w over ranks and buffers is n, and
/// Σ x changes by the steps alone, however fast ranks are. w is a double, whatever the parameters
/// are.
///
/// A rank that steps while nothing comes in would give itself away, and its step in z is γ / w
/// times d: while a share would leave it a weight below 1/8, it keeps everything. A rank keeps what
/// was meant for one that has finished.
///
/// A rank that makes the share ρ_i of all steps counts by it: ranks settle, within order γ, where
/// Σ ρ_i ∇f_i = 0.
///
/// `drain` takes in what has come. Between two barriers of all ranks it leaves nothing on its way:
/// so does a checkpoint that counts everything.
///
/// Cost per rank and round: one pass over the model and, between hosts, one message for each
/// destination; memory of one copy of the model, and one for each source (`BucketWindows`).
/// Source: arXiv 1811.10792 (overlap SGP); Assran and Rabbat, "Asynchronous gradient push", arXiv
/// 1803.08950; BlueFog's `DistributedPushSumOptimizer`. The bound on w is this library's.
class AsyncPushSum final : public Algorithm {
 public:
  /// Collective. @param context, buckets outlive this object.
  /// @param neighbors every round's neighbours are among its.
  AsyncPushSum(Context& context, std::vector<Bucket>& buckets, const Schedule& neighbors);

  [[nodiscard]] std::size_t calls_due() const override { return 0; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;
  void drain() override;
  void discard() override;
  /// "weight of bucket 0", …: w as float64.
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  [[nodiscard]] double& weight(std::size_t b) const;
  void step_sum(std::size_t b, const StepBucket& step_bucket);
  void exchange(std::size_t b, const NeighborPlan& plan);
  /// w where x is.
  [[nodiscard]] at::Tensor weight_tensor(std::size_t b) const;
  void leave_step_for_later();
  void show_quotients();

  /// Each bucket's x and w.
  std::vector<at::Tensor> sums_;
  std::vector<at::Tensor> weights_;
  BucketWindows windows_;
};

}  // namespace bluefog::optimizers
