// How samples are dealt to ranks, and dealt anew.
#include "optimizers/sampling/deal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <vector>

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

}  // namespace
}  // namespace bluefog::optimizers
