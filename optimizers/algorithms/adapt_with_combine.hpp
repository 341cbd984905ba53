#pragma once

#include <cstdint>
#include <vector>

#include "bluefog_cpp/work.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/left_values.hpp"
#include "optimizers/local_step.hpp"

namespace bluefog::optimizers {

/// AWC, also decentralized gradient descent (DGD, D-PSGD): the average with the neighbours and the
/// local step from the same parameters,
///
///     x ← W x − γ d(x).
///
/// After its step each bucket is published; the average of what the neighbours published is formed
/// in place at the start of the next step, before the local step with the gradient of the old x.
/// So a whole iteration of computing hides the transfer, and parameters change only inside `step`.
/// The first step takes x for W x: start from equal parameters. `drain` forms the outstanding
/// average; the next step then computes its gradient at that average.
///
/// Values that the caller sets between two steps stay: the average in flight, of the values before,
/// is left out for those parameters. Set after two rounds in a row they are an error of the next
/// step (StateError), because that parameter would never be averaged; `drain` before it is set.
///
/// Published buckets wait in order: of two optimizers of this kind on one context, the one that
/// published first must combine first. Models that are stepped independently of each other get a
/// context each (`Context::duplicate`).
///
/// Rounds that average over others than the neighbours (`Averaging`) do so at the start of their
/// own step, which waits for it.
///
/// Cost per rank and round: one neighbor_allreduce for each bucket; memory for the published copy
/// of the model in shared memory.
/// Source: D-PSGD, arXiv 1705.09056; BlueFog's `DistributedAdaptWithCombineOptimizer`.
class AdaptWithCombine final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  /// @param stepping as in the options of the distributed optimizer.
  AdaptWithCombine(Context& context, std::vector<Bucket>& buckets, Stepping stepping);

  [[nodiscard]] bool allows_other_averages() const noexcept override { return true; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;
  void drain() override;
  void discard() override;

 private:
  class EarlierRound;

  template <typename StepOne>
  void combine_and(EarlierRound& earlier, StepOne&& step_one);
  template <typename End>
  void for_all_in_flight(End&& end);
  void combine(std::size_t b);
  void end_average(std::size_t b, const KeptValues& kept);
  void check_averages_stay(std::size_t b) const;
  void step_after_average(const Round& round, const StepBucket& step_bucket);

  Context& context_;
  /// The wrapped optimizer steps all buckets with the first one.
  bool steps_whole_;
  NeighborAverages averages_;
  std::vector<ops::NeighborAllreduceOptions> options_;
  std::vector<Work> works_;
  /// Whether a bucket's average is in flight.
  std::vector<char> is_published_;
  std::vector<LeftValues> left_;
  /// After how many of the last rounds in a row the caller has set each parameter.
  std::vector<std::vector<std::int64_t>> times_set_;
};

}  // namespace bluefog::optimizers
