#include "topology/spectral_gap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/analysis/gap_solvers.hpp"
#include "topology/boost_graph.hpp"

namespace bluefog::topology {
namespace {

constexpr double kSumTolerance = 1e-6;
constexpr int kMaxDenseRanks = 5000;
/// Iterative solvers need a few dimensions to work in.
constexpr int kMinIterativeRanks = 16;
constexpr std::int64_t kMaxIterativeEntries = 200'000'000;

bool sum_to_one(const std::vector<double>& sums) {
  return std::ranges::all_of(sums, [](double sum) { return std::abs(sum - 1.0) <= kSumTolerance; });
}

void require_unit_sums(const MixingMatrix& matrix) {
  const std::vector<double> sums = matrix.row_sums();
  if (sum_to_one(sums) || sum_to_one(matrix.column_sums())) {
    return;
  }
  const auto worst =
      std::ranges::max_element(sums, {}, [](double sum) { return std::abs(sum - 1.0); });
  throw InvalidArgument(
      fmt::format("spectral gap: expected rows or columns that sum to 1, but row {} sums to {}",
                  worst - sums.begin(), *worst));
}

bool never_averages(const MixingMatrix& matrix) {
  return matrix.is_doubly_stochastic(kSumTolerance) && !is_strongly_connected(matrix);
}

SpectralGap disconnected_gap() {
  const GapEstimate zero{.value = 0.0, .lower = 0.0, .upper = 0.0, .converged = true};
  return {.lambda2 = zero, .norm = zero, .method = GapMethod::Disconnected};
}

SpectralGap dense_or_iterative(const MixingMatrix& matrix, const GapOptions& options) {
  const int size = matrix.size();
  const bool dense = options.method == GapMethod::Dense || size < kMinIterativeRanks ||
                     (options.method == GapMethod::Automatic && size <= options.dense_limit);
  if (dense) {
    if (size > kMaxDenseRanks) {
      throw InvalidArgument(
          fmt::format("dense spectral gap: {} ranks, expected at most {}", size, kMaxDenseRanks));
    }
    return detail::dense_gap(matrix);
  }
  if (matrix.entry_count() > kMaxIterativeEntries) {
    throw InvalidArgument(fmt::format("iterative spectral gap: {} entries, expected at most {}",
                                      matrix.entry_count(), kMaxIterativeEntries));
  }
  if (never_averages(matrix)) {
    return disconnected_gap();
  }
  return detail::iterative_gap(matrix, options);
}

}  // namespace

std::string_view name_of(GapMethod method) {
  switch (method) {
    case GapMethod::Automatic:
      return "automatic";
    case GapMethod::Fourier:
      return "Fourier";
    case GapMethod::Dense:
      return "dense";
    case GapMethod::Iterative:
      return "iterative";
    case GapMethod::Disconnected:
      return "disconnected";
    case GapMethod::Residual:
      return "residual";
    case GapMethod::Star:
      return "closed form of a star";
  }
  throw InternalError("spectral gap: unknown method");
}

SpectralGap spectral_gap(const MixingMatrix& matrix, const GapOptions& options) {
  require_unit_sums(matrix);
  if (options.method == GapMethod::Disconnected || options.method == GapMethod::Residual ||
      options.method == GapMethod::Star) {
    throw InvalidArgument(fmt::format("spectral gap: '{}' is a finding, not a method to ask for",
                                      name_of(options.method)));
  }
  if (options.method == GapMethod::Automatic || options.method == GapMethod::Fourier) {
    if (matrix.pattern()) {
      return detail::fourier_gap(*matrix.pattern());
    }
    if (const auto pattern = detail::detect_circulant(matrix)) {
      return detail::fourier_gap(*pattern);
    }
    if (options.method == GapMethod::Fourier) {
      throw InvalidArgument("Fourier spectral gap: the rows are not shifts of each other");
    }
  }
  if (options.method == GapMethod::Automatic) {
    if (const auto gap = detail::star_gap(matrix)) {
      return *gap;
    }
  }
  return dense_or_iterative(matrix, options);
}

namespace detail {

GapEstimate converged_gap(double magnitude, double error) {
  if (!std::isfinite(magnitude) || !std::isfinite(error)) {  // weights near the largest number
    return bounded_gap(0.0, std::numeric_limits<double>::infinity());
  }
  const double gap = 1.0 - magnitude;
  // A magnitude of 1 may come out a little larger.
  return {.value = gap < 0.0 && gap >= -error ? 0.0 : gap,
          .lower = gap - error,
          .upper = gap + error,
          .converged = true};
}

GapEstimate bounded_gap(double lower_magnitude, double upper_magnitude) {
  return {.value = std::numeric_limits<double>::quiet_NaN(),
          .lower = 1.0 - upper_magnitude,
          .upper = 1.0 - lower_magnitude,
          .converged = false};
}

std::optional<TranslationPattern> detect_circulant(const MixingMatrix& matrix) {
  const int size = matrix.size();
  const std::vector<WeightedRank> first = matrix.row(0);
  TranslationPattern pattern{.shape = {size}, .entries = first};
  for (int rank = 1; rank < size; ++rank) {
    std::vector<WeightedRank> row = matrix.row(rank);
    if (row.size() != first.size()) {
      return std::nullopt;
    }
    // Entries past the wrap come first in the row and last in the pattern.
    std::ranges::rotate(row, std::ranges::lower_bound(row, rank, {}, &WeightedRank::rank));
    for (std::size_t k = 0; k < row.size(); ++k) {
      if (row[k].weight != first[k].weight || row[k].rank != pattern.shift(rank, first[k].rank)) {
        return std::nullopt;
      }
    }
  }
  return pattern;
}

double norm_upper_bound(const MixingMatrix& matrix) {
  const auto largest_sum = [](const MixingMatrix& any) {
    double largest = 0.0;
    for (int rank = 0; rank < any.size(); ++rank) {
      double sum = 0.0;
      for (const WeightedRank& entry : any.row(rank)) {
        sum += std::abs(entry.weight);
      }
      largest = std::max(largest, sum);
    }
    return largest;
  };
  const double bound = std::sqrt(largest_sum(matrix) * largest_sum(matrix.transposed()));
  // J projects W out where rows and columns sum to 1; elsewhere ‖J‖₂ = 1 adds.
  const bool deflates = sum_to_one(matrix.row_sums()) && sum_to_one(matrix.column_sums());
  return deflates ? bound : bound + 1.0;
}

}  // namespace detail
}  // namespace bluefog::topology
