#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// The gradients that a backward pass has finished.
class BucketReadiness {
 public:
  explicit BucketReadiness(const std::vector<Bucket>& buckets) : counts_(buckets.size(), 0) {
    for (const Bucket& bucket : buckets) {
      is_ready_.emplace_back(bucket.segments().size(), 0);
    }
  }

  /// A pass begins.
  void clear() noexcept {
    std::ranges::fill(counts_, 0U);
    for (auto& of_bucket : is_ready_) {
      std::ranges::fill(of_bucket, 0);
    }
  }
  /// Parameter `segment` of `bucket` has its gradient.
  void note(std::size_t bucket, std::size_t segment) noexcept {
    counts_[bucket] += is_ready_[bucket][segment] == 0 ? 1U : 0U;
    is_ready_[bucket][segment] = 1;
  }
  /// Whether all parameters of `bucket` have their gradients.
  [[nodiscard]] bool is_whole(std::size_t bucket) const noexcept {
    return counts_[bucket] == is_ready_[bucket].size();
  }

 private:
  std::vector<std::vector<char>> is_ready_;
  std::vector<std::size_t> counts_;
};

}  // namespace bluefog::optimizers
