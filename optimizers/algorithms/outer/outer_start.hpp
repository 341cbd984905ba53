#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "optimizers/bucket.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// θ, the model that local steps began with.
class OuterStart {
 public:
  explicit OuterStart(const std::vector<Bucket>& buckets);

  /// Sets θ to the parameters where it is not known yet. @return whether it was not.
  bool begin(const std::vector<Bucket>& buckets);
  /// θ of bucket b.
  [[nodiscard]] const at::Tensor& operator[](std::size_t b) const { return values_[b]; }
  /// "outer start of bucket 0", …, "outer steps begun".
  [[nodiscard]] NamedTensors state() const;
  /// Forgets θ.
  void restart();

 private:
  std::vector<at::Tensor> values_;
  /// Whether θ is known: part of the state, so a tensor.
  at::Tensor has_begun_;
};

}  // namespace bluefog::optimizers
