#pragma once

#include <vector>

#include "topology/mixing_matrix.hpp"

namespace bluefog::topology::detail {

/// The fewest factors of `size`, each from 2 to `largest`, rising; empty for 1, and also where a
/// prime factor is above `largest` (`is_smooth` tells).
[[nodiscard]] std::vector<int> fewest_factors(int size, int largest);

/// True if no prime factor of `size` is above `largest`.
[[nodiscard]] bool is_smooth(int size, int largest);

/// Places 0 … n − 1 as points of a grid with few extents; in round t the places that differ in
/// coordinate t alone average.
class HyperHypercube {
 public:
  /// @param largest_extent k + 1. @pre `is_smooth(size, largest_extent)`.
  HyperHypercube(int size, int largest_extent);

  [[nodiscard]] int rounds() const { return static_cast<int>(extents_.size()); }

  /// The places that `place` averages with in `round` (modulo the rounds), itself included; only
  /// itself if there are no rounds.
  [[nodiscard]] std::vector<int> members(int place, int round) const;

  /// The step of a round, if the places are the ranks.
  [[nodiscard]] MixingMatrix mixing_matrix(int round) const;

 private:
  std::vector<int> extents_;
  std::vector<int> strides_;
};

}  // namespace bluefog::topology::detail
