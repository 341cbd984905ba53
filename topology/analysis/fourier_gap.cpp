#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "topology/analysis/gap_solvers.hpp"

namespace bluefog::topology::detail {
namespace {

/// Beyond this many products the sums would take minutes.
constexpr double kMaxProducts = 2e10;

/// One entry of the pattern as a wave: its phase in units of 2π / period for the present wave
/// number, and the phase that each dimension's next wave number adds.
struct Wave {
  double weight = 0.0;
  std::int64_t phase = 0;
  std::vector<std::int64_t> step;
};

/// The entries that decide the eigenvalues other than that of 1. A full row
/// first loses its most typical weight: equal weights everywhere sum to zero
/// for every wave but the constant one, which leaves a complete graph with
/// nothing but its self weight.
std::vector<WeightedRank> deciding_entries(const TranslationPattern& pattern) {
  std::vector<WeightedRank> entries = pattern.entries;
  if (static_cast<int>(entries.size()) == pattern.size()) {
    std::vector<double> weights;
    for (const WeightedRank& entry : entries) {
      weights.push_back(entry.weight);
    }
    const auto middle = weights.begin() + static_cast<std::ptrdiff_t>(weights.size() / 2);
    std::ranges::nth_element(weights, middle);
    for (WeightedRank& entry : entries) {
      entry.weight -= *middle;
    }
  }
  std::erase_if(entries, [](const WeightedRank& entry) { return entry.weight == 0.0; });
  return entries;
}

std::int64_t common_period(const std::vector<int>& shape) {
  std::int64_t period = 1;
  for (const int extent : shape) {
    period = std::lcm(period, std::int64_t{extent});
  }
  return period;
}

std::vector<Wave> waves_of(const TranslationPattern& pattern, std::int64_t period) {
  std::vector<Wave> waves;
  for (const WeightedRank& entry : deciding_entries(pattern)) {
    Wave wave{.weight = entry.weight, .phase = 0, .step = {}};
    wave.step.resize(pattern.shape.size());
    int offset = entry.rank;
    for (std::size_t d = pattern.shape.size(); d-- > 0;) {
      const int extent = pattern.shape[d];
      wave.step[d] = (offset % extent) * (period / extent);
      offset /= extent;
    }
    waves.push_back(std::move(wave));
  }
  return waves;
}

/// Goes to the next wave number, the last dimension fastest. A dimension that
/// wraps has added a whole number of periods.
void advance(std::vector<int>& number, std::vector<Wave>& waves, const std::vector<int>& shape,
             std::int64_t period) {
  for (std::size_t d = shape.size(); d-- > 0;) {
    for (Wave& wave : waves) {
      wave.phase += wave.step[d];
      if (wave.phase >= period) {
        wave.phase -= period;
      }
    }
    if (++number[d] < shape[d]) {
      return;
    }
    number[d] = 0;
  }
}

}  // namespace

SpectralGap fourier_gap(const TranslationPattern& pattern) {
  const int size = pattern.size();
  const std::int64_t period = common_period(pattern.shape);
  std::vector<Wave> waves = waves_of(pattern, period);
  double sum = 0.0;
  double absolute_sum = 0.0;
  for (const WeightedRank& entry : pattern.entries) {
    sum += entry.weight;
    absolute_sum += std::abs(entry.weight);
  }
  if (static_cast<double>(waves.size()) * size > kMaxProducts) {
    const GapEstimate unknown = bounded_gap(0.0, absolute_sum);
    return {.lambda2 = unknown, .norm = unknown, .method = GapMethod::Fourier};
  }

  std::vector<double> cosine(period);
  std::vector<double> sine(period);
  for (std::int64_t k = 0; k < period; ++k) {
    const double angle =
        2.0 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(period);
    cosine[k] = std::cos(angle);
    sine[k] = std::sin(angle);
  }
  double largest = 0.0;
  std::vector<int> number(pattern.shape.size(), 0);
  for (int k = 1; k < size; ++k) {
    advance(number, waves, pattern.shape, period);
    double real = 0.0;
    double imaginary = 0.0;
    for (const Wave& wave : waves) {
      real += wave.weight * cosine[wave.phase];
      imaginary += wave.weight * sine[wave.phase];
    }
    largest = std::max(largest, std::hypot(real, imaginary));
  }
  // Translation-invariant matrices are normal: the 2-norm is an eigenvalue's modulus. For the
  // constant wave it is the distance of the sum from 1.
  const double error = std::numeric_limits<double>::epsilon() * absolute_sum *
                       (4.0 + static_cast<double>(waves.size()));
  return {.lambda2 = converged_gap(largest, error),
          .norm = converged_gap(std::max(largest, std::abs(sum - 1.0)), error),
          .method = GapMethod::Fourier};
}

}  // namespace bluefog::topology::detail
