#pragma once

#include <cstdint>
#include <vector>

#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

/// The one row that says all of a translation-invariant mixing matrix.
///
/// Ranks are the points of a periodic grid (row-major), that is of the group
/// Z_{shape[0]} × Z_{shape[1]} × …: a ring or exponential graph has one
/// dimension, a torus two, a hypercube one of extent 2 per bit. Then
///
///     W(i, i + entries[k].rank) = entries[k].weight     for every i and k
///
/// with the sum taken in the group. A hundred thousand ranks, or a complete
/// graph on them, cost no more than one row; the eigenvalues are the Fourier
/// sums of that row.
struct TranslationPattern {
  /// Extents of the grid, each at least 1.
  std::vector<int> shape;
  /// Offsets as row-major positions, rising, offset 0 for the self weight.
  std::vector<WeightedRank> entries;

  /// Sorts `entries`, adding up those of equal offset.
  static TranslationPattern make(std::vector<int> shape, std::vector<WeightedRank> entries);

  /// Product of the extents. @throws InvalidArgument beyond the range of int.
  [[nodiscard]] int size() const;
  /// Rank at `rank + offset`, each dimension modulo its extent.
  [[nodiscard]] int shift(int rank, int offset) const;
  /// The offset that undoes `offset`.
  [[nodiscard]] int inverse(int offset) const;
  /// Pattern of the transposed matrix.
  [[nodiscard]] TranslationPattern transposed() const;

  /// Memberwise.
  friend bool operator==(const TranslationPattern&, const TranslationPattern&) = default;
};

/// Pattern of the product A B; both on the same grid.
/// Cost: products of their entry counts.
[[nodiscard]] TranslationPattern compose(const TranslationPattern& a, const TranslationPattern& b);

}  // namespace bluefog
