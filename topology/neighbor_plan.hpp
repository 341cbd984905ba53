#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

class StepGraph;

/// One rank's part of one averaging step. A value.
///
/// With d_j(i) the weight with which rank j sends to rank i, the step computes
///
///     x_i ← self_weight · x_i + Σ_{(j, w) ∈ sources} w · d_j(i) · x_j
///
/// The receiver multiplies: values travel as they are, each with its send
/// weight beside it. In static graphs every send weight is 1, so that `w` is
/// the mixing matrix's W(i, j).
struct NeighborPlan {
  /// The rank whose part this is, in 0 … size − 1.
  int rank = 0;
  /// Number of ranks that take part.
  int size = 1;
  /// Weight of this rank's own value.
  double self_weight = 1.0;
  /// Ranks that it hears, rising, each with the weight that this rank gives.
  std::vector<WeightedRank> sources;
  /// Ranks that it sends to, rising, each with the weight it sends with.
  std::vector<WeightedRank> destinations;
  /// Digest of the whole graph that the plan is taken from, or 0: checked steps compare it, since
  /// graphs may differ between ranks in what their plans do not show.
  std::uint64_t graph = 0;
  /// Who hears whom in the whole step, where that is known: in plans of a `MixingMatrix` or a
  /// `Schedule`. It says nothing of weights, and stays right where these are changed; where sources
  /// or destinations are, it has to be reset.
  std::shared_ptr<const StepGraph> step{};

  /// The plan of a rank that keeps its own value and talks to nobody.
  static NeighborPlan alone(int rank, int size);

  /// Checks this rank's part by itself; other ranks' parts are
  /// `check_plans_agree`'s business (topology/plan_agreement.hpp).
  /// @throws InvalidArgument if size < 1, if `rank` or a neighbour is out of
  ///   0 … size − 1, a list is not strictly rising, a list names the rank
  ///   itself, or a weight is not finite.
  void validate() const;

  /// Memberwise, without `step`.
  friend bool operator==(const NeighborPlan& a, const NeighborPlan& b) {
    return a.rank == b.rank && a.size == b.size && a.self_weight == b.self_weight &&
           a.sources == b.sources && a.destinations == b.destinations && a.graph == b.graph;
  }
};

}  // namespace bluefog
