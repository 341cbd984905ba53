#include "examples/data/batch_sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::vector<std::int64_t> copy_of(std::span<const std::int64_t> batch) {
  return {batch.begin(), batch.end()};
}

std::vector<std::int64_t> pass_of(BatchSampler& sampler, std::int64_t pass) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < sampler.batches_per_pass(); ++i) {
    const auto batch = sampler.batch(pass * sampler.batches_per_pass() + i);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

TEST(BatchSamplerTest, KeepEndsThePassWithASmallerBatch) {
  BatchSampler sampler({10, 20, 30, 40, 50}, 2, 1, LastBatch::Keep);
  EXPECT_EQ(sampler.batches_per_pass(), 3);
  EXPECT_THAT(sampler.batch(2), SizeIs(1));
  EXPECT_THAT(sampler.batch(3), SizeIs(2));
  EXPECT_THAT(pass_of(sampler, 4), UnorderedElementsAre(10, 20, 30, 40, 50));
}

TEST(BatchSamplerTest, DropLeavesTheRestOut) {
  BatchSampler sampler({10, 20, 30, 40, 50}, 2, 1);
  EXPECT_EQ(sampler.batches_per_pass(), 2);
  auto seen = pass_of(sampler, 0);
  std::sort(seen.begin(), seen.end());
  EXPECT_THAT(seen, SizeIs(4));
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST(BatchSamplerTest, WholeBatchesAreTheSameUnderBothPolicies) {
  EXPECT_EQ(BatchSampler({1, 2, 3, 4}, 2, 1, LastBatch::Keep).batches_per_pass(), 2);
  EXPECT_EQ(BatchSampler({1, 2, 3, 4}, 2, 1, LastBatch::Drop).batches_per_pass(), 2);
}

TEST(BatchSamplerTest, SmallShardIsOneBatchPerPass) {
  BatchSampler sampler({7, 8}, 64, 1);
  EXPECT_EQ(sampler.batches_per_pass(), 1);
  EXPECT_THAT(copy_of(sampler.batch(5)), UnorderedElementsAre(7, 8));
}

TEST(BatchSamplerTest, PassesDifferAndTheSeedDecides) {
  std::vector<std::int64_t> shard(100);
  std::generate(shard.begin(), shard.end(), [i = std::int64_t{0}]() mutable { return i++; });
  BatchSampler one(shard, 10, 1);
  BatchSampler same(shard, 10, 1);
  BatchSampler other(shard, 10, 2);
  EXPECT_NE(pass_of(one, 0), shard);
  EXPECT_NE(pass_of(one, 0), pass_of(one, 1));
  EXPECT_EQ(pass_of(one, 1), pass_of(same, 1));
  EXPECT_NE(pass_of(one, 1), pass_of(other, 1));
}

TEST(BatchSamplerTest, BatchIsAFunctionOfTheStepAlone) {
  BatchSampler walked({1, 2, 3, 4, 5, 6}, 2, 9);
  for (std::int64_t step = 0; step < 7; ++step) {
    (void)walked.batch(step);
  }
  BatchSampler resumed({1, 2, 3, 4, 5, 6}, 2, 9);
  EXPECT_EQ(copy_of(walked.batch(7)), copy_of(resumed.batch(7)));
  EXPECT_EQ(copy_of(walked.batch(1)), copy_of(resumed.batch(1)));
}

TEST(BatchSamplerTest, BadArgumentsAreRefused) {
  EXPECT_THROW(BatchSampler({}, 2, 1), InvalidArgument);
  EXPECT_THROW(BatchSampler({1}, 0, 1), InvalidArgument);
  BatchSampler sampler({1}, 1, 1);
  EXPECT_THROW((void)sampler.batch(-1), InvalidArgument);
}

}  // namespace
}  // namespace bluefog::examples
