#include "examples/data/sharding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

using Random = std::mt19937_64;

std::vector<double> draw_proportions(int ranks, double alpha, Random& random) {
  std::gamma_distribution<double> gamma(alpha, 1.0);
  std::vector<double> proportions(static_cast<std::size_t>(ranks));
  std::generate(proportions.begin(), proportions.end(), [&] { return gamma(random); });
  const double sum = std::accumulate(proportions.begin(), proportions.end(), 0.0);
  if (!(sum > 0.0)) {
    // A tiny alpha underflows to zero everywhere: its limit gives a class to one rank.
    std::fill(proportions.begin(), proportions.end(), 0.0);
    proportions[random() % proportions.size()] = 1.0;
    return proportions;
  }
  std::for_each(proportions.begin(), proportions.end(), [&](double& p) { p /= sum; });
  return proportions;
}

/// Cuts `samples` at the rounded cumulative proportions.
void deal(const std::vector<std::int64_t>& samples, const std::vector<double>& proportions,
          Shards& shards) {
  const auto count = static_cast<double>(samples.size());
  double cumulative = 0.0;
  std::size_t begin = 0;
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    cumulative += proportions[rank];
    const bool is_last = rank + 1 == shards.size();
    const auto cut = static_cast<std::size_t>(std::llround(std::min(cumulative, 1.0) * count));
    const std::size_t end = is_last ? samples.size() : std::max(begin, cut);
    const auto from = samples.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = samples.begin() + static_cast<std::ptrdiff_t>(end);
    shards[rank].insert(shards[rank].end(), from, to);
    begin = end;
  }
}

void fill_up_small_shards(Shards& shards, std::int64_t min_per_rank) {
  const auto by_size = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  for (auto& shard : shards) {
    while (std::ssize(shard) < min_per_rank) {
      auto& largest = *std::max_element(shards.begin(), shards.end(), by_size);
      shard.push_back(largest.back());
      largest.pop_back();
    }
  }
}

}  // namespace

Shards iid_shards(std::int64_t count, int ranks, std::uint64_t seed) {
  if (ranks < 1 || count < ranks) {
    throw InvalidArgument(
        fmt::format("iid_shards: expected at least one sample per rank, found {} samples for {} "
                    "ranks",
                    count, ranks));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed);
  std::shuffle(order.begin(), order.end(), random);
  Shards shards(static_cast<std::size_t>(ranks));
  auto next = order.begin();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t share = count / ranks + (rank < count % ranks ? 1 : 0);
    shards[static_cast<std::size_t>(rank)].assign(next, next + share);
    next += share;
  }
  return shards;
}

Shards dirichlet_shards(std::span<const std::uint8_t> labels, int ranks, double alpha,
                        std::uint64_t seed, std::int64_t min_per_rank) {
  if (ranks < 1 || min_per_rank < 0 ||
      std::ssize(labels) < min_per_rank * static_cast<std::int64_t>(ranks)) {
    throw InvalidArgument(fmt::format(
        "dirichlet_shards: expected at least {} samples for each of at least one rank, found {} "
        "samples for {} ranks",
        min_per_rank, labels.size(), ranks));
  }
  if (!(alpha > 0.0) || !std::isfinite(alpha)) {
    throw InvalidArgument(
        fmt::format("dirichlet_shards: expected a positive, finite alpha, found {}", alpha));
  }
  std::vector<std::vector<std::int64_t>> samples_of_class(256);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    samples_of_class[labels[i]].push_back(static_cast<std::int64_t>(i));
  }
  Random random(seed);
  Shards shards(static_cast<std::size_t>(ranks));
  for (auto& samples : samples_of_class) {
    if (!samples.empty()) {
      std::shuffle(samples.begin(), samples.end(), random);
      deal(samples, draw_proportions(ranks, alpha, random), shards);
    }
  }
  fill_up_small_shards(shards, min_per_rank);
  return shards;
}

}  // namespace bluefog::examples
