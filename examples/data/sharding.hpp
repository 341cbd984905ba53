#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bluefog::examples {

/// For each rank the indices of the samples that it trains on; every sample is in exactly one.
using Shards = std::vector<std::vector<std::int64_t>>;

/// Deals a random permutation of `count` samples to `ranks` ranks: shard sizes differ by at most
/// one, the lower ranks take the remainder. Every rank computes the same shards from the same
/// arguments, without communication.
///
/// @throws InvalidArgument unless 1 <= ranks <= count.
[[nodiscard]] Shards iid_shards(std::int64_t count, int ranks, std::uint64_t seed);

/// Splits the samples of each class among the ranks by proportions p ~ Dirichlet(alpha, …, alpha):
/// the smaller alpha, the fewer classes a rank sees; a large alpha approaches IID shards.
///
/// Every rank gets at least `min_per_rank` samples: where the draw gave fewer, samples move there
/// from the largest shards. Every rank computes the same shards from the same arguments, without
/// communication.
///
/// @param labels one per sample.
/// @throws InvalidArgument unless ranks >= 1, min_per_rank >= 0, alpha is positive and finite, and
///   there are at least ranks × min_per_rank samples.
/// Source: Hsu, Qi, Brown 2019, arXiv 1909.06335, section 3.
[[nodiscard]] Shards dirichlet_shards(std::span<const std::uint8_t> labels, int ranks, double alpha,
                                      std::uint64_t seed, std::int64_t min_per_rank = 1);

}  // namespace bluefog::examples
