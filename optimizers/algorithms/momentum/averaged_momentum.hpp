#pragma once

#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/bucket_averages.hpp"

namespace bluefog::optimizers {

/// The common part of algorithms with momentum over the averaged model's way: averages with the
/// neighbours, v, and room for x at the start of a step. A checkpoint keeps v.
class AveragedMomentum : public Algorithm {
 public:
  /// @param context, buckets outlive this object.
  /// @param momentum β, from 0 to below 1.
  AveragedMomentum(Context& context, std::vector<Bucket>& buckets, double momentum);

  /// "momentum of bucket 0", …
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 protected:
  double momentum_;
  NeighborAverages averages_;
  /// v, and x at the start of the step.
  std::vector<at::Tensor> moments_;
  std::vector<at::Tensor> starts_;
};

/// The part of their rows that they have in common.
[[nodiscard]] AlgorithmRow averaged_momentum_row();

}  // namespace bluefog::optimizers
