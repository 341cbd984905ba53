#include "pipeline/epoch_shares.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using pipeline::EpochShares;
using pipeline::GlobalBatch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The samples of the next step by replica, as all replicas' own objects deal them.
std::vector<std::int64_t> step_of(std::vector<EpochShares>& ranks, int replicas) {
  std::vector<std::int64_t> samples;
  std::int64_t rows = 0;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const int replica = rank % replicas;
    const GlobalBatch batch = ranks[static_cast<std::size_t>(rank)].next(replicas, replica);
    rows = batch.rows;
    if (rank < replicas) {
      samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(samples.size()), rows);
  return samples;
}

TEST(EpochShares, EverySampleIsSeenOnceThroughEveryChangeOfReplicas) {
  std::vector<EpochShares> ranks(4, EpochShares(103, 10, 5));
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> seen;
    for (EpochShares& rank : ranks) {
      rank.begin_epoch(epoch);
    }
    for (int step = 0; ranks.front().left() > 0; ++step) {
      constexpr int kReplicas[] = {1, 2, 4, 3};
      const std::vector<std::int64_t> samples = step_of(ranks, kReplicas[step % 4]);
      EXPECT_EQ(samples.size(), step == 10 ? 3U : 10U);
      seen.insert(seen.end(), samples.begin(), samples.end());
    }
    std::ranges::sort(seen);
    std::vector<std::int64_t> all(103);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all) << "epoch " << epoch;
  }
}

TEST(EpochShares, StepsAreTheSameForAnyNumberOfReplicas) {
  std::vector<EpochShares> one(1, EpochShares(64, 12, 9));
  std::vector<EpochShares> five(5, EpochShares(64, 12, 9));
  while (one.front().left() > 0) {
    EXPECT_EQ(step_of(one, 1), step_of(five, 5));
  }
}

TEST(EpochShares, EpochsHaveOrdersOfTheirOwn) {
  EpochShares shares(50, 50, 1);
  const auto first = shares.next(1, 0).samples;
  shares.begin_epoch(1);
  const auto second = shares.next(1, 0).samples;
  EXPECT_NE(first, second);
  shares.begin_epoch(0);
  EXPECT_EQ(shares.next(1, 0).samples, first);
  EpochShares other(50, 50, 2);
  EXPECT_NE(other.next(1, 0).samples, first);
  // The order is the same on every machine.
  EpochShares small(6, 6, 1);
  EXPECT_THAT(small.next(1, 0).samples, ElementsAre(0, 5, 2, 3, 1, 4));
}

TEST(EpochShares, FewerRowsThanReplicasLeaveSomeWithout) {
  EpochShares shares(3, 2, 0);
  EXPECT_TRUE(shares.next(4, 3).samples.empty());
  const GlobalBatch last = shares.next(4, 0);
  EXPECT_EQ(last.rows, 1);
  EXPECT_EQ(last.samples.size(), 1U);
  EXPECT_THAT(error_of<StateError>([&] { static_cast<void>(shares.next(1, 0)); }),
              HasSubstr("found all 3 seen"));
}

TEST(EpochShares, WhatCannotBeIsRefused) {
  EXPECT_THROW(EpochShares(0, 1, 0), InvalidArgument);
  EXPECT_THROW(EpochShares(1, 0, 0), InvalidArgument);
  EpochShares shares(1, 1, 0);
  EXPECT_THROW(shares.begin_epoch(-1), InvalidArgument);
  EXPECT_THROW(static_cast<void>(shares.next(2, 2)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(shares.next(0, 0)), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::testing
