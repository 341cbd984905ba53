#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// Linear sketches of the parameters, S x of 256 numbers with E‖S x‖² = ‖x‖²: distances between
/// ranks without sending the model. Each element counts in one number, with a random sign; S is the
/// same on all ranks. Models of up to 256 elements have each in a number of its own, and exact
/// distances; of others the square of a distance has a standard deviation of √(2/256), 9 %.
///
/// Memory: a byte for each element. Source: arXiv 1207.6365 (count sketch).
class DistanceSketch {
 public:
  /// The small calls of `distance`.
  static constexpr std::size_t kCalls = 2;

  /// @param context, buckets outlive this object.
  DistanceSketch(Context& context, const std::vector<Bucket>& buckets);

  /// S x of bucket b's parameters, float64[256].
  [[nodiscard]] at::Tensor of(std::size_t b) const;

  /// The consensus distance and a mean over ranks.
  struct Found {
    double distance = 0.0;  ///< sqrt((1/n) Σ ‖x_i − x̄‖²), estimated
    double mean = 0.0;      ///< of what ranks passed
  };

  /// Collective: the same bits on all ranks. Cost: two all-reduces, of 2 KiB and 16 bytes.
  /// @param issued is incremented before each call.
  [[nodiscard]] Found distance(double own, std::size_t& issued) const;

 private:
  Context& context_;
  const std::vector<Bucket>& buckets_;
  std::vector<at::Tensor> signs_;
  /// The number that a bucket's first element counts in: buckets follow each other.
  std::vector<std::int64_t> firsts_;
};

}  // namespace bluefog::optimizers
