#pragma once

namespace bluefog {

/// A rank with the weight that its value gets (or is sent with).
struct WeightedRank {
  int rank = 0;         ///< the number of the rank that the weight is for
  double weight = 1.0;  ///< the factor of the value, of any sign

  /// Memberwise.
  friend bool operator==(const WeightedRank&, const WeightedRank&) = default;
};

}  // namespace bluefog
