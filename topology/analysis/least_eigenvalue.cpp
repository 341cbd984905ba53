#include "topology/analysis/least_eigenvalue.hpp"

#include <fmt/format.h>

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/analysis/symmetric_extreme.hpp"

namespace bluefog::topology {
namespace {

constexpr double kUnitSumTolerance = 1e-6;
constexpr int kDenseRanks = 400;
constexpr std::int64_t kMostEntries = 200'000'000;

void require_symmetric_averages(const MixingMatrix& matrix) {
  if (!matrix.is_symmetric()) {
    throw InvalidArgument("least eigenvalue: expected a symmetric mixing matrix");
  }
  const std::vector<double> sums = matrix.row_sums();
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    if (!(std::abs(sums[rank] - 1.0) <= kUnitSumTolerance)) {
      throw InvalidArgument(
          fmt::format("least eigenvalue: expected rows that sum to 1, but row {} sums to {}", rank,
                      sums[rank]));
    }
  }
  if (matrix.entry_count() > kMostEntries) {
    throw InvalidArgument(fmt::format("least eigenvalue: {} entries, expected at most {}",
                                      matrix.entry_count(), kMostEntries));
  }
}

EigenvalueEstimate from_all_eigenvalues(const MixingMatrix& matrix) {
  const int size = matrix.size();
  const std::vector<double> dense = matrix.to_dense();
  const Eigen::MatrixXd all = Eigen::Map<const Eigen::MatrixXd>(dense.data(), size, size);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(all, Eigen::EigenvaluesOnly);
  return {.value = solver.eigenvalues().minCoeff(),
          .error = 4.0 * std::numeric_limits<double>::epsilon() * size,
          .converged = solver.info() == Eigen::Success};
}

/// No eigenvalue lies below this (Gershgorin).
double lower_bound(const MixingMatrix& matrix) {
  double lowest = 1.0;
  for (int rank = 0; rank < matrix.size(); ++rank) {
    double end = 0.0;
    for (const WeightedRank& entry : matrix.row(rank)) {
      end += entry.rank == rank ? entry.weight : -std::abs(entry.weight);
    }
    lowest = std::min(lowest, end);
  }
  return lowest;
}

/// Turns the spectrum round: with b a lower bound of all λ, the eigenvalues of (I − W) / (1 − b)
/// are (1 − λ) / (1 − b), from 0 to 1. The largest is that of the smallest λ, near 1 where solvers
/// look; the constant vector belongs to 0.
EigenvalueEstimate from_the_far_end(const MixingMatrix& matrix) {
  const double range = 1.0 - lower_bound(matrix);
  if (range <= 0.0) {
    return {.value = 1.0, .error = 0.0, .converged = true};
  }
  std::vector<Eigen::Triplet<double, int>> entries;
  entries.reserve(static_cast<std::size_t>(matrix.entry_count() + matrix.size()));
  for (int rank = 0; rank < matrix.size(); ++rank) {
    entries.emplace_back(rank, rank, 1.0 / range);
    for (const WeightedRank& entry : matrix.row(rank)) {
      entries.emplace_back(rank, entry.rank, -entry.weight / range);
    }
  }
  detail::SparseMatrix scaled(matrix.size(), matrix.size());
  scaled.setFromTriplets(entries.begin(), entries.end());
  const detail::Magnitude far = detail::symmetric_extreme(scaled, {});
  return {.value = 1.0 - range * far.value, .error = range * far.error, .converged = far.converged};
}

}  // namespace

EigenvalueEstimate least_eigenvalue(const MixingMatrix& matrix) {
  require_symmetric_averages(matrix);
  return matrix.size() <= kDenseRanks ? from_all_eigenvalues(matrix) : from_the_far_end(matrix);
}

}  // namespace bluefog::topology
