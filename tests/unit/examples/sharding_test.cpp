#include "examples/data/sharding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

std::vector<std::int64_t> sorted_union(const Shards& shards) {
  std::vector<std::int64_t> all;
  for (const auto& shard : shards) {
    all.insert(all.end(), shard.begin(), shard.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::int64_t> first_integers(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<std::uint8_t> ten_classes(int per_class) {
  std::vector<std::uint8_t> labels;
  for (int i = 0; i < 10 * per_class; ++i) {
    labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return labels;
}

/// Mean over ranks of the share of a rank's samples that its most frequent class has.
double mean_largest_share(const Shards& shards, const std::vector<std::uint8_t>& labels) {
  double sum = 0.0;
  for (const auto& shard : shards) {
    std::vector<double> counts(10, 0.0);
    for (const std::int64_t sample : shard) {
      counts[labels[static_cast<std::size_t>(sample)]] += 1.0;
    }
    sum += *std::max_element(counts.begin(), counts.end()) / static_cast<double>(shard.size());
  }
  return sum / static_cast<double>(shards.size());
}

TEST(IidShardsTest, EverySampleIsInOneShardAndSizesDifferByOne) {
  const Shards shards = iid_shards(11, 4, 7);
  ASSERT_EQ(shards.size(), 4U);
  EXPECT_EQ(shards[0].size(), 3U);
  EXPECT_EQ(shards[1].size(), 3U);
  EXPECT_EQ(shards[2].size(), 3U);
  EXPECT_EQ(shards[3].size(), 2U);
  EXPECT_EQ(sorted_union(shards), first_integers(11));
}

TEST(IidShardsTest, SeedDecides) {
  EXPECT_EQ(iid_shards(1000, 3, 1), iid_shards(1000, 3, 1));
  EXPECT_NE(iid_shards(1000, 3, 1), iid_shards(1000, 3, 2));
  const Shards single = iid_shards(1000, 1, 1);
  EXPECT_FALSE(std::is_sorted(single[0].begin(), single[0].end()));
}

TEST(IidShardsTest, TooManyRanksAreRefused) {
  EXPECT_THROW((void)iid_shards(3, 4, 0), InvalidArgument);
  EXPECT_THROW((void)iid_shards(3, 0, 0), InvalidArgument);
}

TEST(DirichletShardsTest, EverySampleIsInOneShard) {
  const auto labels = ten_classes(100);
  for (const double alpha : {1e-6, 0.1, 1.0, 1e6}) {
    const Shards shards = dirichlet_shards(labels, 8, alpha, 3);
    EXPECT_EQ(sorted_union(shards), first_integers(1000)) << alpha;
  }
}

TEST(DirichletShardsTest, EveryRankHasTheMinimum) {
  const auto labels = ten_classes(100);
  for (const double alpha : {1e-6, 0.01, 0.1}) {
    for (const auto& shard : dirichlet_shards(labels, 32, alpha, 5, 20)) {
      EXPECT_GE(shard.size(), 20U) << alpha;
    }
  }
}

TEST(DirichletShardsTest, SmallAlphaIsSkewedAndLargeAlphaIsNot) {
  const auto labels = ten_classes(1000);
  EXPECT_GT(mean_largest_share(dirichlet_shards(labels, 8, 0.05, 1), labels), 0.5);
  const Shards even = dirichlet_shards(labels, 8, 1e7, 1);
  EXPECT_LT(mean_largest_share(even, labels), 0.11);
  for (const auto& shard : even) {
    EXPECT_NEAR(static_cast<double>(shard.size()), 1250.0, 25.0);
  }
}

TEST(DirichletShardsTest, TinyAlphaDealsWholeClassesToSeveralRanks) {
  const auto labels = ten_classes(100);
  const Shards shards = dirichlet_shards(labels, 8, 1e-9, 2, 0);
  int busy_ranks = 0;
  for (const auto& shard : shards) {
    EXPECT_EQ(shard.size() % 100, 0U);
    busy_ranks += shard.empty() ? 0 : 1;
  }
  EXPECT_GE(busy_ranks, 4);
}

TEST(DirichletShardsTest, SeedDecides) {
  const auto labels = ten_classes(100);
  EXPECT_EQ(dirichlet_shards(labels, 4, 0.3, 1), dirichlet_shards(labels, 4, 0.3, 1));
  EXPECT_NE(dirichlet_shards(labels, 4, 0.3, 1), dirichlet_shards(labels, 4, 0.3, 2));
}

TEST(DirichletShardsTest, BadArgumentsAreRefused) {
  const auto labels = ten_classes(1);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double alpha : {0.0, -1.0, infinity, std::nan("")}) {
    EXPECT_THROW((void)dirichlet_shards(labels, 2, alpha, 0), InvalidArgument) << alpha;
  }
  EXPECT_THROW((void)dirichlet_shards(labels, 0, 1.0, 0), InvalidArgument);
  EXPECT_THROW((void)dirichlet_shards(labels, 11, 1.0, 0), InvalidArgument);
  EXPECT_THROW((void)dirichlet_shards(labels, 2, 1.0, 0, 6), InvalidArgument);
  EXPECT_THROW((void)dirichlet_shards(labels, 2, 1.0, 0, -1), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::examples
