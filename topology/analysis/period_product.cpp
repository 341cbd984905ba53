#include "topology/analysis/period_product.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "topology/graphs/seeded_draws.hpp"

namespace bluefog::topology::detail {
namespace {

/// Entries that `second.after(first)` could have.
double product_bound(const MixingMatrix& second, const MixingMatrix& first) {
  const double size = second.size();
  const bool shifts_only =
      second.pattern() && first.pattern() && second.pattern()->shape == first.pattern()->shape;
  if (shifts_only) {
    // One row of the product, before equal offsets are added up.
    return static_cast<double>(second.entry_count()) / size *
           (static_cast<double>(first.entry_count()) / size);
  }
  const double rows =
      static_cast<double>(second.entry_count()) * (static_cast<double>(first.entry_count()) / size);
  return std::min(rows, size * size);
}

std::vector<double> drawn_signs(int size, int probe) {
  std::vector<double> signs(size);
  std::mt19937_64 generator = generator_of(0, probe);
  for (double& sign : signs) {
    sign = generator() % 2 == 0 ? 1.0 : -1.0;
  }
  return signs;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Vectors on their way through a period, and where they should arrive.
struct Probes {
  std::vector<std::vector<double>> values;
  std::vector<double> means;

  Probes(int size, int count) {
    for (int probe = 0; probe < count; ++probe) {
      values.push_back(drawn_signs(size, probe));
      means.push_back(mean_of(values.back()));
    }
  }

  [[nodiscard]] double distance() const {
    double largest = 0.0;
    for (std::size_t rank = 0; rank < values.front().size(); ++rank) {
      double sum = 0.0;
      for (std::size_t probe = 0; probe < values.size(); ++probe) {
        const double left = values[probe][rank] - means[probe];
        sum += left * left;
      }
      largest = std::max(largest, sum);
    }
    return std::sqrt(largest / static_cast<double>(values.size()));
  }
};

}  // namespace

std::optional<MixingMatrix> product_of_period(const Schedule& schedule, std::int64_t max_entries) {
  MixingMatrix product = schedule.mixing_matrix(0);
  for (std::int64_t step = 1; step < schedule.period_steps(); ++step) {
    const MixingMatrix next = schedule.mixing_matrix(step);
    if (product_bound(next, product) > static_cast<double>(max_entries)) {
      return std::nullopt;
    }
    product = next.after(product);
  }
  return product;
}

double distance_from_mean(const MixingMatrix& product) {
  const double mean = 1.0 / product.size();
  const int looked_at = product.pattern() ? 1 : product.size();
  double largest = 0.0;
  for (int rank = 0; rank < looked_at; ++rank) {
    const std::vector<WeightedRank> row = product.row(rank);
    if (static_cast<int>(row.size()) < product.size()) {
      largest = std::max(largest, mean);
    }
    for (const WeightedRank& entry : row) {
      largest = std::max(largest, std::abs(entry.weight - mean));
    }
  }
  return largest;
}

double probe_distance(int size, std::int64_t period, int probes, const StepOnValues& step) {
  Probes travelling(size, std::max(probes, 1));
  for (std::vector<double>& values : travelling.values) {
    for (std::int64_t t = 0; t < period; ++t) {
      step(t, values);
    }
  }
  return travelling.distance();
}

double probe_distance(const Schedule& schedule, int probes) {
  Probes travelling(schedule.size(), std::max(probes, 1));
  std::vector<double> next(schedule.size());
  for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
    const MixingMatrix matrix = schedule.mixing_matrix(step);
    for (std::vector<double>& values : travelling.values) {
      matrix.apply(values, next);
      values.swap(next);
    }
  }
  return travelling.distance();
}

}  // namespace bluefog::topology::detail
