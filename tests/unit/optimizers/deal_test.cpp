// How samples are dealt to ranks, and dealt anew.
#include "optimizers/sampling/deal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <vector>

#include "optimizers/sampling/common_deal.hpp"

namespace bluefog::optimizers {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> numbers_of(const at::Tensor& share) {
  const auto* const first = share.const_data_ptr<std::int64_t>();
  return {first, first + share.numel()};
}

/// How often each sample is in the first `counts` of these shares.
std::map<std::int64_t, int> times(const std::vector<at::Tensor>& shares) {
  std::map<std::int64_t, int> found;
  for (const at::Tensor& share : shares) {
    for (const std::int64_t sample : numbers_of(share)) {
      ++found[sample];
    }
  }
  return found;
}

TEST(Dealing, GivesEveryRankAsManyAndEverySampleToOne) {
  const Dealing plain{.count = 7, .shuffles = false};
  const auto shares = plain.first_shares(0, 3);
  EXPECT_THAT(numbers_of(shares[0]), ElementsAre(0, 3, 6));
  EXPECT_THAT(numbers_of(shares[1]), ElementsAre(1, 4, 0));
  EXPECT_THAT(numbers_of(shares[2]), ElementsAre(2, 5, 1));
  EXPECT_EQ(plain.missed_by(shares), 0);
  EXPECT_EQ(plain.missed_by({shares[1]}), 4);
}

TEST(Dealing, TakesTheOrderOfTorchsGenerator) {
  const Dealing shuffled{.count = 50, .shuffles = true, .seed = 3};
  auto random = at::detail::createCPUGenerator(5);
  EXPECT_TRUE(at::equal(shuffled.first_shares(2, 1)[0], at::randperm(50, random, at::kLong)));
  EXPECT_FALSE(at::equal(shuffled.first_shares(2, 1)[0], shuffled.first_shares(3, 1)[0]));
}

TEST(Dealing, FewerSamplesThanRanksAreDealtAgain) {
  const auto shares = Dealing{.count = 2, .shuffles = false}.first_shares(0, 5);
  EXPECT_THAT(numbers_of(shares[4]), ElementsAre(0));
}

TEST(Dealing, DealsWhatNobodyHasDrawnToThoseThatAreLeft) {
  for (const bool shuffles : {false, true}) {
    const Dealing dealing{.count = 103, .shuffles = shuffles, .seed = 1};
    auto shares = dealing.first_shares(4, 3);
    shares.erase(shares.begin() + 1);  // that rank is lost, with all that it had drawn
    const std::vector<std::int64_t> drawn{10, 12};
    const auto later = dealing.later_shares(4, shares, drawn);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::equal(later[i].slice(0, 0, drawn[i]), shares[i].slice(0, 0, drawn[i])));
      EXPECT_EQ(later[i].numel(), 52);  // 103 in halves
    }
    const auto found = times(later);
    EXPECT_EQ(found.size(), 103);
    EXPECT_EQ(dealing.missed_by(later), 0);
  }
}

TEST(Dealing, OneThatHasDrawnMoreThanItsPartGetsNothing) {
  const Dealing dealing{.count = 8, .shuffles = false};
  const auto shares = dealing.first_shares(0, 2);
  const auto later = dealing.later_shares(0, shares, {4, 0});
  EXPECT_THAT(numbers_of(later[0]), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(numbers_of(later[1]), ElementsAre(1, 3, 5, 7));
}

// Loaders have fetched ahead: what they have is trained on, and nobody makes fewer steps.
TEST(Dealing, AllDrawAsManyAsWhoHasDrawnMost) {
  const Dealing dealing{.count = 6, .shuffles = false};
  auto shares = dealing.first_shares(0, 1);
  shares.resize(3, at::full({6}, -1, at::kLong));
  const auto later = dealing.later_shares(0, shares, {4, 0, 0});
  for (const at::Tensor& share : later) {
    EXPECT_EQ(share.numel(), 4);
  }
  EXPECT_EQ(times(later).size(), 6);
}

// A process that joins begins where the others are: what these drew before counts for them alone.
TEST(Dealing, ANewRankHasDrawnNothingOfWhatOthersHad) {
  const Dealing dealing{.count = 10, .shuffles = false};
  const at::Tensor nothing = at::full({3}, -1, at::kLong);
  const auto together =
      dealing.later_shares(0, {dealing.first_shares(0, 1).front(), nothing}, {3, 3});
  EXPECT_EQ(together[1].numel(), 7);
  EXPECT_TRUE(at::equal(together[1].slice(0, 0, 3), nothing));
  EXPECT_EQ(dealing.missed_by(together), 0);
  const auto alone = dealing.later_shares(0, {together[1]}, {4});
  EXPECT_EQ(times(alone).size(), 11);  // all ten, and no sample three times
  EXPECT_EQ(dealing.missed_by(alone), 0);
}

using sampling::common_deal;
using sampling::KnownDeal;
using sampling::Standing;

const KnownDeal kFirst{.generation = 0, .members = {0, 1, 2}, .drawn = 20};
const KnownDeal kSecond{.generation = 1, .members = {0, 1, 2, 3}, .drawn = 25};

TEST(CommonDeal, IsNothingWhereNobodyHasBegun) {
  EXPECT_FALSE(common_deal({{.number = 0}, {.number = 1}, {.number = 3, .is_new = true}}));
}

TEST(CommonDeal, IsTheNewestThatAllHave) {
  const auto common = common_deal({{.number = 0, .known = {kSecond, kFirst}},
                                   {.number = 1, .known = {kFirst}},
                                   {.number = 3, .known = {kSecond}}});
  ASSERT_TRUE(common);
  EXPECT_EQ(common->generation, 0);
  EXPECT_THAT(common->members, ElementsAre(0, 1, 2));
  EXPECT_THAT(common->has_part, ElementsAre(true, true, false));
  EXPECT_EQ(common->giver, 0U);
  EXPECT_THAT(common->drawn, ElementsAre(20, 20, 0));
  EXPECT_FALSE(common->is_newest);
  EXPECT_FALSE(common->has_ended);

  const auto second = common_deal({{.number = 0, .known = {kSecond, kFirst}},
                                   {.number = 3, .known = {kSecond}},
                                   {.number = 4, .is_new = true}});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->generation, 1);
  EXPECT_THAT(second->has_part, ElementsAre(true, true, false));
  EXPECT_TRUE(second->is_newest);
}

// The same ranks may have dealt twice: a process has joined, and is lost.
TEST(CommonDeal, TellsDealsOfTheSameRanksApart) {
  const KnownDeal third{.generation = 2, .members = {0, 1, 2}, .drawn = 30};
  const auto common = common_deal({{.number = 0, .known = {third, kSecond, kFirst}},
                                   {.number = 1, .known = {kSecond, kFirst}}});
  ASSERT_TRUE(common);
  EXPECT_EQ(common->generation, 1);
}

TEST(CommonDeal, OfTheFirstAnyRankHasPart) {
  const auto common = common_deal({{.number = 0}, {.number = 1, .known = {kFirst}}});
  ASSERT_TRUE(common);
  EXPECT_THAT(common->has_part, ElementsAre(true, true));
  EXPECT_THAT(common->drawn, ElementsAre(0, 20));
}

// Two meetings took in one process each, and all that were there before are lost.
TEST(CommonDeal, IsThatOfTheMostWhereNoneIsEverybodys) {
  const KnownDeal later{.generation = 1, .members = {0, 1, 4, 5}, .drawn = 20, .has_ended = true};
  const auto common = common_deal({{.number = 3, .known = {kSecond, kFirst}},
                                   {.number = 4, .known = {later, kFirst}},
                                   {.number = 5, .known = {later, kFirst}}});
  ASSERT_TRUE(common);
  EXPECT_THAT(common->members, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(common->has_part, ElementsAre(false, true, true));
  EXPECT_EQ(common->giver, 1U);
  EXPECT_TRUE(common->has_ended);
}

}  // namespace
}  // namespace bluefog::optimizers
