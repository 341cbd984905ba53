#include "ops/calls/exchanges/component_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace bluefog::ops {
namespace {

using ::testing::ElementsAre;

/// Everybody hears everybody.
std::shared_ptr<const StepComponent> complete(int size) {
  return StepComponent::around(0, static_cast<std::size_t>(size), [size](int rank) {
    StepLinks links;
    for (int other = 0; other < size; ++other) {
      if (other != rank) {
        links.sources.push_back(other);
      }
    }
    links.destinations = links.sources;
    return links;
  });
}

std::vector<double> weights_of(const ResultRow& row) {
  std::vector<double> weights;
  for (const auto& term : row.terms) {
    weights.push_back(term.weight);
  }
  return weights;
}

TEST(ResultRows, WeighByReceiversAndSenders) {
  const auto component = complete(3);
  const std::vector<double> first{0.25, 0.5};
  const std::vector<double> second{2, 3};
  const std::vector<double> third{5, 7};
  const std::vector<double> sent_by_first{10, 20};
  const std::vector<double> sent_by_second{30, 40};
  const std::vector<double> sent_by_third{50, 60};
  const std::vector<RankStepWeights> weights{
      {.self = 0.5, .sources = first, .destinations = sent_by_first},
      {.self = 11, .sources = second, .destinations = sent_by_second},
      {.self = 13, .sources = third, .destinations = sent_by_third}};
  const auto rows = result_rows(*component, weights);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(weights_of(rows[0]), ElementsAre(0.5, 0.25 * 30, 0.5 * 50));
  EXPECT_THAT(weights_of(rows[1]), ElementsAre(2 * 10, 11, 3 * 60));
  EXPECT_THAT(weights_of(rows[2]), ElementsAre(5 * 20, 7 * 40, 13));
  for (std::size_t place = 0; place < 3; ++place) {
    EXPECT_THAT(rows[place].results, ElementsAre(place));
    EXPECT_EQ(rows[place].terms[2].place, 2U);
  }
}

TEST(ResultRows, OfRanksWithEqualOnesAreOne) {
  const auto component = complete(3);
  const std::vector<double> even{0.25, 0.25};
  const std::vector<double> ones{1, 1};
  const std::vector<double> odd{0.5, 0.25};
  std::vector<RankStepWeights> weights(3, {.self = 0.25, .sources = even, .destinations = ones});
  const auto alike = result_rows(*component, weights);
  ASSERT_EQ(alike.size(), 1U);
  EXPECT_THAT(alike[0].results, ElementsAre(0, 1, 2));
  weights[1].sources = odd;
  const auto unlike = result_rows(*component, weights);
  ASSERT_EQ(unlike.size(), 2U);
  EXPECT_THAT(unlike[0].results, ElementsAre(0, 2));
  EXPECT_THAT(unlike[1].results, ElementsAre(1));
}

/// Zeros of both signs make results of both signs.
TEST(ResultRows, WithZerosOfTwoSignsAreTwo) {
  const auto component = complete(2);
  const std::vector<double> zero{0.0};
  const std::vector<double> negative{-0.0};
  const std::vector<double> one{1.0};
  const std::vector<RankStepWeights> weights{
      {.self = 0.0, .sources = zero, .destinations = one},
      {.self = -0.0, .sources = negative, .destinations = one}};
  EXPECT_EQ(result_rows(*component, weights).size(), 2U);
}

TEST(ResultRows, OfARankThatHearsNobodyAreItsOwnValue) {
  const auto component = StepComponent::around(0, 2, [](int rank) {
    return rank == 0 ? StepLinks{.sources = {}, .destinations = {1}}
                     : StepLinks{.sources = {0}, .destinations = {}};
  });
  const std::vector<double> half{0.5};
  const std::vector<RankStepWeights> weights{{.self = 1, .sources = {}, .destinations = half},
                                             {.self = 1, .sources = half, .destinations = {}}};
  const auto rows = result_rows(*component, weights);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(weights_of(rows[0]), ElementsAre(1));
  EXPECT_THAT(weights_of(rows[1]), ElementsAre(0.25, 1));
}

}  // namespace
}  // namespace bluefog::ops
