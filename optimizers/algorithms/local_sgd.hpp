#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// Local SGD: every rank steps for itself, and every H-th step (`num_steps_per_communication`)
/// averages the parameters over all ranks,
///
///     x ← x − γ d;   in steps H, 2H, …: x ← J (x − γ d).
///
/// The wrapped optimizer's moments stay each rank's own. H = 1 with plain SGD is parallel SGD.
/// Cost per rank and H steps: one allreduce for each bucket, which notes its calls on the heap; no
/// memory of its own.
/// Source: arXiv 1805.09767.
class LocalSgd final : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  LocalSgd(Context& context, std::vector<Bucket>& buckets);

  [[nodiscard]] bool averages_with_neighbors() const noexcept override { return false; }
  void step(const Round& round, const StepBucket& step_bucket) override;

 private:
  GlobalAverages averages_;
};

}  // namespace bluefog::optimizers
