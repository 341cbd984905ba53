#pragma once

namespace bluefog {

/// A rank with the weight that its value gets (or is sent with).
struct WeightedRank {
  int rank = 0;
  double weight = 1.0;

  friend bool operator==(const WeightedRank&, const WeightedRank&) = default;
};

}  // namespace bluefog
