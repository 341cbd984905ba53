#include "benchmarks/rounds.hpp"

#include <algorithm>
#include <cstddef>

#include "ops/allgather_parts.hpp"

namespace bluefog::benchmarks {

double quantile(std::vector<double> values, double q) {
  const auto index = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

std::vector<double> slowest(Context& context, const std::vector<double>& own) {
  std::vector<double> worst(own.size(), 0.0);
  for (const std::vector<double>& theirs : ops::allgather_parts(context, "benchmark", own)) {
    for (std::size_t i = 0; i < worst.size(); ++i) {
      worst[i] = std::max(worst[i], theirs[i]);
    }
  }
  return worst;
}

}  // namespace bluefog::benchmarks
