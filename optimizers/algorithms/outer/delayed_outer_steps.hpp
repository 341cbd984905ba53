#pragma once

#include <cstddef>
#include <vector>

#include "bluefog_cpp/work.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithms/outer/outer_momentum.hpp"
#include "optimizers/algorithms/outer/outer_start.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// Outer steps whose averages are under way while local steps go on: one is sent in a round, and has
/// taken effect before the next one is.
///
/// An average that fails is an error of the round in which it would take effect, and has none.
/// A checkpoint keeps θ and v; what is under way when it is written takes effect at once (`drain`).
class DelayedOuterSteps : public Algorithm {
 public:
  void step(const Round& round, const StepBucket& step_bucket) override;
  void drain() final { take_effect(); }
  void discard() final;
  [[nodiscard]] NamedTensors state() const final;
  void restart() final;

 protected:
  /// @param context, buckets outlive this object.
  DelayedOuterSteps(Context& context, std::vector<Bucket>& buckets, const OuterMomentum& rule);

  /// A local step, of all buckets.
  virtual void step_locally(const StepBucket& step_bucket);
  /// Starts an average of each bucket, or of a part of it: `works_`, of which `issued` counts the calls.
  virtual void start_averages(const Round& round, std::size_t& issued) = 0;
  /// Takes the averages, which are here.
  virtual void apply_averages() = 0;
  /// Lets go of the memory of averages: calls that have timed out go on with it.
  virtual void forget_averages() = 0;

  /// Waits for the averages under way, if there are any, and takes them.
  void take_effect();

  Context& context_;
  OuterMomentum rule_;
  OuterStart start_;
  std::vector<at::Tensor> moments_;
  std::vector<Work> works_;

 private:
  void send(const Round& round, std::size_t& issued);

  bool is_under_way_ = false;
};

}  // namespace bluefog::optimizers
