#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "optimizers/algorithms/outer/delayed_outer_steps.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// Outer steps whose averages take effect one outer step late: local steps go on while values travel,
/// and are kept. With x the model after H local steps, sent as s, and A the average over the ranks,
///
///     s ← x;   H local steps later:   G = γ (θ − A s);   v ← β v + G;   θ⁺ by the rule;
///     x ← θ⁺ + (x − s);   s ← x …
///
/// With γ = 1 and β = 0, x ← A s + (x − s): the mean of x moves by all local steps, each once. Without
/// gradients x is θ, and differences die out as they do without the delay; gradients are of a model
/// that lacks what the other ranks have done in the last H steps.
///
/// After an average that fails the next outer step goes on from the same θ.
///
/// Cost per rank and outer step: one allreduce or neighbor_allreduce for each bucket, which has the
/// time of H local steps; four copies of the model: θ, v, s and its average.
/// Source: arXiv 2502.12996 (overlapped outer steps), 2006.00441 (DaSGD: x + A s − s).
class LateOuterSteps final : public DelayedOuterSteps {
 public:
  /// @param context, buckets outlive this object. @param averaging Neighbors or Everybody.
  LateOuterSteps(Context& context, std::vector<Bucket>& buckets, const OuterMomentum& rule,
                 Averaging averaging);

  [[nodiscard]] bool averages_with_neighbors() const noexcept override {
    return averaging_ == Averaging::Neighbors;
  }
  void step_alone(const StepBucket& step_bucket) override { step_locally(step_bucket); }

 private:
  void start_averages(const Round& round, std::size_t& issued) override;
  void apply_averages() override;
  void forget_averages() override;

  Averaging averaging_;
  /// s of the outer step under way, and what becomes its average; empty where calls that have timed
  /// out may go on in earlier ones.
  std::vector<at::Tensor> sent_;
  std::vector<at::Tensor> average_;
  std::optional<NeighborAverages> averages_;
};

/// The option `outer_delay` of rows.
[[nodiscard]] AlgorithmOption outer_delay();

/// `row`, of outer steps by `rule`, which may be late: with `outer_delay` 1 `LateOuterSteps` are made.
[[nodiscard]] AlgorithmRow with_outer_delay(
    AlgorithmRow row, std::function<OuterMomentum(const DistributedOptimizerOptions&)> rule,
    Averaging averaging);

}  // namespace bluefog::optimizers
