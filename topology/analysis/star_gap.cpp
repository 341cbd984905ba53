#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "topology/analysis/gap_solvers.hpp"

namespace bluefog::topology::detail {
namespace {

constexpr double kRounding = 8.0 * std::numeric_limits<double>::epsilon();

bool is_about(double value, double expected) { return std::abs(value - expected) <= kRounding; }

/// The rank that would be the center: rank 0, or the only one that rank 0 has an edge to.
std::optional<int> find_center(const MixingMatrix& matrix) {
  const std::vector<WeightedRank> row = matrix.row(0);
  if (row.size() > 2) {
    return 0;
  }
  for (const WeightedRank& entry : row) {
    if (entry.rank != 0) {
      return entry.rank;
    }
  }
  return std::nullopt;
}

/// The weight w of every edge, if `matrix` is I − w L with L the Laplacian of the star around
/// `center`.
std::optional<double> common_weight(const MixingMatrix& matrix, int center) {
  const int size = matrix.size();
  const double weight = matrix.weight(center, center == 0 ? 1 : 0);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<WeightedRank> row = matrix.row(rank);
    const double own = rank == center ? 1.0 - (size - 1) * weight : 1.0 - weight;
    if (rank != center && std::ssize(row) > 2) {
      return std::nullopt;
    }
    int others = 0;
    for (const WeightedRank& entry : row) {
      const bool is_own = entry.rank == rank;
      if (!is_own && rank != center && entry.rank != center) {
        return std::nullopt;
      }
      if (is_own ? !is_about(entry.weight, own) : entry.weight != weight) {
        return std::nullopt;
      }
      others += is_own ? 0 : 1;
    }
    if (others != (rank == center ? size - 1 : 1)) {
      return std::nullopt;
    }
    if (std::ssize(row) == others && !is_about(own, 0.0)) {
      return std::nullopt;
    }
  }
  return weight;
}

}  // namespace

std::optional<SpectralGap> star_gap(const MixingMatrix& matrix) {
  const int size = matrix.size();
  if (size < 4) {
    return std::nullopt;
  }
  const std::optional<int> center = find_center(matrix);
  if (!center) {
    return std::nullopt;
  }
  const std::optional<double> weight = common_weight(matrix, *center);
  if (!weight) {
    return std::nullopt;
  }
  const double largest = std::max(std::abs(1.0 - *weight), std::abs(1.0 - size * *weight));
  // The self weights differ from those of I − w L by at most the rounding that was let through.
  const double error = kRounding * (2.0 + size * std::abs(*weight));
  const GapEstimate gap = converged_gap(largest, error);
  return SpectralGap{.lambda2 = gap, .norm = gap, .method = GapMethod::Star};
}

}  // namespace bluefog::topology::detail
