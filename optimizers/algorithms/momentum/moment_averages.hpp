#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "bluefog_cpp/work.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/options.hpp"

namespace bluefog::optimizers {

/// Adapt-then-combine or adapt-with-combine around Adam or its like, whose moments are averaged with
/// the parameters: where a local step makes m⁺, v⁺ of m, v and x − γ m̂⁺ / (√v̂⁺ + ε) of x,
///
///     x ← W (x − γ m̂⁺ / (√v̂⁺ + ε));   m ← W m⁺;   v ← W v⁺ (with both),
///
/// so that with W = J and equal starts all ranks have one state; and with adapt-with-combine
///
///     m ← W m;   v ← W v (with both);   x ← W x − γ m̂⁺ / (√v̂⁺ + ε),
///
/// with m⁺ and v⁺ of these and of the gradient at the x before: averages are formed at the start of
/// their own step, which waits for them. A parameter that has had no gradient
/// on this rank counts as zeros there, and gets none. Steps between two that communicate leave moments
/// to each rank. Numbers of steps, by which bias is corrected, are each rank's own, and so is the
/// maximum that AMSGrad keeps.
///
/// A round that fails leaves moments as the last local step has made them. Moments are the wrapped
/// optimizer's state, and saved as such; nothing else is carried.
///
/// Cost per rank and round: a neighbor_allreduce for each bucket, and another one for each of its
/// moments: two or three times the bytes; as many copies of the model as moments, and two passes over
/// each. Sources: arXiv 1901.09109 (moments of each rank's own), 2410.11998.
class MomentAverages final : public Algorithm {
 public:
  /// Whether the local step comes before the averages or after them.
  enum class Order : std::uint8_t { AdaptThenCombine, AdaptWithCombine };

  /// @param context, buckets outlive this object. @param count 1: the first moments, 2: both.
  MomentAverages(Context& context, std::vector<Bucket>& buckets, MomentsOf moments,
                 std::size_t count, Order order);

  [[nodiscard]] bool allows_other_averages() const noexcept override { return true; }
  [[nodiscard]] std::size_t calls_due() const override { return works_.size(); }
  void step(const Round& round, const StepBucket& step_bucket) override;

 private:
  /// One moment of all parameters, flat, and each parameter's part of it in the parameter's form.
  struct Kind {
    std::vector<at::Tensor> flat;
    std::vector<std::vector<at::Tensor>> parts;
    std::optional<NeighborAverages> averages;
  };

  [[nodiscard]] Kind make_kind(std::size_t kind) const;
  void gather(std::size_t b);
  void hand_back();
  /// The averages of a round; `make_ready` makes a bucket ready for its own.
  template <typename MakeReady>
  void average(const Round& round, const MakeReady& make_ready);

  Context& context_;
  MomentsOf moments_;
  NeighborAverages values_;
  /// The wrapped optimizer's moments in a round, by bucket and parameter.
  std::vector<std::vector<ParameterMoments>> own_;
  /// Empty where calls that have timed out may go on in earlier ones.
  std::vector<Kind> kinds_;
  std::size_t kind_count_;
  Order order_;
  std::vector<Work> works_;
};

/// `row`, of an algorithm of that order, which may average moments: with the option `average_moments`
/// `MomentAverages` are made.
[[nodiscard]] AlgorithmRow with_moment_averages(AlgorithmRow row, MomentAverages::Order order);

}  // namespace bluefog::optimizers
