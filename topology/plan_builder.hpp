#pragma once

#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include "bluefog_cpp/weighted_rank.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog {

/// Ranks with their weights, in any order: `{{0, 0.25}, {3, 0.25}}` or a map.
class RankWeights {
 public:
  /// No rank.
  RankWeights() = default;
  /// The weights of a map from ranks.
  RankWeights(const std::map<int, double>& weights);  // NOLINT: implicit
  /// The weights of a list of (rank, weight).
  RankWeights(std::initializer_list<std::pair<int, double>> weights);  // NOLINT: implicit

  /// The ranks in rising order; a rank that was given twice is there twice.
  [[nodiscard]] const std::vector<WeightedRank>& rising() const noexcept { return rising_; }

 protected:
  /// The given weights, which are sorted by rank.
  explicit RankWeights(std::vector<WeightedRank> weights);

 private:
  std::vector<WeightedRank> rising_;
};

/// `RankWeights`, or only the ranks, `{2, 3}`: each then has the weight 1.
class SendWeights : public RankWeights {
 public:
  using RankWeights::RankWeights;
  SendWeights() = default;
  /// The given ranks, with weight 1 each.
  SendWeights(const std::vector<int>& ranks);  // NOLINT: implicit
  /// The given ranks, with weight 1 each.
  SendWeights(std::initializer_list<int> ranks);  // NOLINT: implicit
};

/// The weights of one rank's averaging step, by the names that BlueFog's users know.
struct StepWeights {
  /// Weight of the rank's own value.
  double self_weight = 1.0;
  /// The ranks it hears, with the weights that it gives to their values.
  RankWeights src_weights{};
  /// The ranks it sends to, with the weights that it sends with.
  SendWeights dst_weights{};
};

/// The plan of `rank` among `size` ranks for a step with these weights. Local: `check_plans_agree`
/// checks whether the ranks' plans fit together.
/// @throws InvalidArgument as `NeighborPlan::validate`: if a rank is out of range, names itself or
///   is named twice, or if a weight is not finite.
/// Source: the dynamic form of BlueFog's `neighbor_allreduce`.
[[nodiscard]] NeighborPlan build_plan(int rank, int size, const StepWeights& weights);

}  // namespace bluefog
