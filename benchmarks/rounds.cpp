#include "benchmarks/rounds.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/collectives.hpp"

namespace bluefog::benchmarks {

double quantile(std::vector<double> values, double q) {
  const auto index = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

std::vector<double> slowest(Context& context, const std::vector<double>& own) {
  const auto rounds = own.size();
  std::vector<double> all;
  ops::allgather(context, {own.data(), static_cast<std::int64_t>(rounds), Dtype::Float64},
                 [&](const std::vector<std::int64_t>& counts) {
                   std::int64_t total = 0;
                   for (const auto count : counts) {
                     total += count;
                   }
                   all.resize(static_cast<std::size_t>(total));
                   return BufferView{all.data(), total, Dtype::Float64};
                 });
  std::vector<double> worst(rounds, 0.0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    worst[i % rounds] = std::max(worst[i % rounds], all[i]);
  }
  return worst;
}

}  // namespace bluefog::benchmarks
