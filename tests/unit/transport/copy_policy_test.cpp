#include "bluefog_cpp/transport/shm/copy_policy.hpp"

#include <gtest/gtest.h>

#include <array>

namespace bluefog::shm {
namespace {

/// A machine on which each path has one cost for the writer and one for the reader.
struct Machine {
  std::array<float, kCopyPaths> write{};
  std::array<float, kCopyPaths> read{};
};

/// Sends `chunks` chunks of class `index`. @return how many took `counted`.
int send(CopyPolicy& policy, const Machine& machine, std::size_t index, int chunks,
         CopyPath counted) {
  int count = 0;
  for (int i = 0; i < chunks; ++i) {
    const CopyPath path = policy.next(
        index, [&](CopyPath asked) { return machine.read[static_cast<std::size_t>(asked)]; });
    policy.wrote(index, path, machine.write[static_cast<std::size_t>(path)]);
    count += path == counted ? 1 : 0;
  }
  return count;
}

constexpr Machine kNear{.write = {1.0F, 2.0F}, .read = {1.0F, 1.5F}};
constexpr Machine kFar{.write = {2.0F, 2.0F}, .read = {6.0F, 2.0F}};

/// Expects that after a while on the machine all chunks but one in 64 take `path`.
void expect_settles_on(CopyPolicy& policy, const Machine& machine, std::size_t index,
                       CopyPath path) {
  send(policy, machine, index, 1000, path);
  EXPECT_EQ(send(policy, machine, index, 6400, path), 6300);
}

TEST(CopyPolicy, TakesTheCheaperPathAndStillTriesTheOther) {
  CopyPolicy near(ShmCopy::Auto);
  expect_settles_on(near, kNear, 0, CopyPath::Cached);
  CopyPolicy far(ShmCopy::Auto);
  expect_settles_on(far, kFar, 0, CopyPath::Streamed);
}

TEST(CopyPolicy, TheReadersTimeCountsAsMuchAsTheWriters) {
  CopyPolicy policy(ShmCopy::Auto);
  expect_settles_on(policy, {.write = {1.0F, 3.0F}, .read = {6.0F, 2.0F}}, 0, CopyPath::Streamed);
}

TEST(CopyPolicy, FollowsRanksThatMoveToOtherCores) {
  CopyPolicy policy(ShmCopy::Auto);
  expect_settles_on(policy, kNear, 0, CopyPath::Cached);
  expect_settles_on(policy, kFar, 0, CopyPath::Streamed);
  expect_settles_on(policy, kNear, 0, CopyPath::Cached);
}

TEST(CopyPolicy, ClassesDecideApart) {
  CopyPolicy policy(ShmCopy::Auto);
  expect_settles_on(policy, kNear, 0, CopyPath::Cached);
  expect_settles_on(policy, kFar, 2, CopyPath::Streamed);
  expect_settles_on(policy, kNear, 0, CopyPath::Cached);
}

TEST(CopyPolicy, StaysWhileReadersHaveNotSpoken) {
  CopyPolicy policy(ShmCopy::Auto);
  expect_settles_on(policy, {.write = {9.0F, 1.0F}, .read = {0.0F, 0.0F}}, 0, CopyPath::Cached);
}

TEST(CopyPolicy, ASettingDecidesAlone) {
  CopyPolicy cached(ShmCopy::Cache);
  EXPECT_EQ(send(cached, kFar, 0, 500, CopyPath::Cached), 500);
  CopyPolicy streamed(ShmCopy::Stream);
  EXPECT_EQ(send(streamed, kNear, 0, 500, CopyPath::Streamed), 500);
}

TEST(CopyPolicy, OneOutlierMovesAnAverageLittle) {
  EXPECT_EQ(updated_cost(0.0F, 5.0F), 5.0F);
  EXPECT_EQ(updated_cost(4.0F, 8.0F), 5.0F);
  EXPECT_EQ(updated_cost(4.0F, 4000.0F), 7.0F);
}

TEST(CopyPolicy, DeepMessagesAreAClassOfTheirOwn) {
  EXPECT_EQ(copy_class(Lane::Ordinary, 65536), 0);
  EXPECT_EQ(copy_class(Lane::Ordinary, 1 << 20), 1);
  EXPECT_EQ(copy_class(Lane::Ordinary, 16 << 20), 2);
  EXPECT_EQ(copy_class(Lane::Deep, 65536), 3);
}

}  // namespace
}  // namespace bluefog::shm
