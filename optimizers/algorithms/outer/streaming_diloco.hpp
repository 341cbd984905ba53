#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimizers/algorithms/outer/delayed_outer_steps.hpp"

namespace bluefog::optimizers {

/// Streaming DiLoCo: the model in P fragments, of which each communicating step averages one while
/// local steps go on. Where x is that fragment after a local step and θ what it was after its last
/// outer one,
///
///     G = α (θ − J x);   v ← β v + G;   θ ← θ − (G + β v);   τ steps later x ← a x + (1 − a) θ.
///
/// A fragment is one part of each bucket, of P that are equal but for whole cache lines. It is
/// averaged once in P communicating steps: H = P times `num_steps_per_communication`. It takes
/// effect after τ steps, at the latest in the next communicating one. P = 1, τ = 0 and a = 0 is
/// DiLoCo.
///
/// An average replaces what the τ steps since have made, but for the share a: of all local work,
/// (1 − a) τ / H is lost.
///
/// Cost per rank and communicating step: one allreduce of 1/P of each bucket, which takes its time
/// while τ steps are made; two copies of the model, and 1/P of one for what is under way.
/// Source: arXiv 2501.18512.
class StreamingDiloco final : public DelayedOuterSteps {
 public:
  struct Fragments {
    std::int64_t count = 4;        ///< P, at least 1
    std::int64_t delay_steps = 1;  ///< τ, at least 0
    double local_share = 0.5;      ///< a, from 0 to below 1
  };

  /// @param context, buckets outlive this object.
  StreamingDiloco(Context& context, std::vector<Bucket>& buckets, const OuterMomentum& rule,
                  const Fragments& fragments);

  [[nodiscard]] bool averages_with_neighbors() const noexcept override { return false; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;

 private:
  /// The elements of a bucket that belong to a fragment.
  struct Part {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  [[nodiscard]] Part part(std::size_t b, std::int64_t fragment) const;
  void step_locally(const StepBucket& step_bucket) override;
  void start_averages(const Round& round, std::size_t& issued) override;
  void apply_averages() override;
  void forget_averages() override;
  void apply_average(std::size_t b, const Part& part);

  Fragments fragments_;
  /// The fragment under way: x of it, and its averages. Undefined where calls that have timed out
  /// may go on in earlier ones.
  std::vector<at::Tensor> sent_;
  std::int64_t under_way_ = 0;
  std::int64_t steps_since_ = 0;
};

}  // namespace bluefog::optimizers
