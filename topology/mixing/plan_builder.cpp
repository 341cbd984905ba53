#include "topology/plan_builder.hpp"

#include <algorithm>

namespace bluefog {
namespace {

template <typename Pairs>
std::vector<WeightedRank> entries_of(const Pairs& pairs) {
  std::vector<WeightedRank> entries;
  for (const auto& [rank, weight] : pairs) {
    entries.push_back({rank, weight});
  }
  return entries;
}

template <typename Ranks>
std::vector<WeightedRank> with_weight_one(const Ranks& ranks) {
  std::vector<WeightedRank> entries;
  for (const int rank : ranks) {
    entries.push_back({rank, 1.0});
  }
  return entries;
}

}  // namespace

RankWeights::RankWeights(std::vector<WeightedRank> weights) : rising_(std::move(weights)) {
  std::ranges::sort(rising_, {}, &WeightedRank::rank);
}

RankWeights::RankWeights(const std::map<int, double>& weights) : RankWeights(entries_of(weights)) {}

RankWeights::RankWeights(std::initializer_list<std::pair<int, double>> weights)
    : RankWeights(entries_of(weights)) {}

SendWeights::SendWeights(const std::vector<int>& ranks) : RankWeights(with_weight_one(ranks)) {}

SendWeights::SendWeights(std::initializer_list<int> ranks) : RankWeights(with_weight_one(ranks)) {}

NeighborPlan build_plan(int rank, int size, const StepWeights& weights) {
  NeighborPlan plan{.rank = rank,
                    .size = size,
                    .self_weight = weights.self_weight,
                    .sources = weights.src_weights.rising(),
                    .destinations = weights.dst_weights.rising()};
  plan.validate();
  return plan;
}

}  // namespace bluefog
