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

TEST(CopyPolicy, TakesTheCheaperPathAndStillTriesTheOther) {
  CopyPolicy policy(ShmCopy::Auto);
  send(policy, kNear, 0, 1000, CopyPath::Cached);
  const int cached = send(policy, kNear, 0, 6400, CopyPath::Cached);
  EXPECT_EQ(cached, 6300);

  CopyPolicy far(ShmCopy::Auto);
  send(far, kFar, 0, 1000, CopyPath::Streamed);
  EXPECT_EQ(send(far, kFar, 0, 6400, CopyPath::Streamed), 6300);
}

TEST(CopyPolicy, TheReadersTimeCountsAsMuchAsTheWriters) {
  constexpr Machine slow_to_write{.write = {1.0F, 3.0F}, .read = {6.0F, 2.0F}};
  CopyPolicy policy(ShmCopy::Auto);
  send(policy, slow_to_write, 0, 1000, CopyPath::Streamed);
  EXPECT_EQ(send(policy, slow_to_write, 0, 640, CopyPath::Streamed), 630);
}

TEST(CopyPolicy, FollowsRanksThatMoveToOtherCores) {
  CopyPolicy policy(ShmCopy::Auto);
  send(policy, kNear, 0, 1000, CopyPath::Cached);
  send(policy, kFar, 0, 1000, CopyPath::Streamed);
  EXPECT_EQ(send(policy, kFar, 0, 640, CopyPath::Streamed), 630);
  send(policy, kNear, 0, 1000, CopyPath::Cached);
  EXPECT_EQ(send(policy, kNear, 0, 640, CopyPath::Cached), 630);
}

TEST(CopyPolicy, ClassesDecideApart) {
  CopyPolicy policy(ShmCopy::Auto);
  send(policy, kNear, 0, 1000, CopyPath::Cached);
  send(policy, kFar, 2, 1000, CopyPath::Streamed);
  EXPECT_EQ(send(policy, kNear, 0, 640, CopyPath::Cached), 630);
  EXPECT_EQ(send(policy, kFar, 2, 640, CopyPath::Streamed), 630);
}

TEST(CopyPolicy, StaysWhileReadersHaveNotSpoken) {
  CopyPolicy policy(ShmCopy::Auto);
  const Machine silent{.write = {9.0F, 1.0F}, .read = {0.0F, 0.0F}};
  send(policy, silent, 0, 1000, CopyPath::Cached);
  EXPECT_EQ(send(policy, silent, 0, 640, CopyPath::Cached), 630);
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
