#pragma once

#include <string>
#include <vector>

#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// One round of an algorithm with momentum v where there are no gradients: with a = x − W s,
///
///     s = x − `of_sent` v;   v ← `momentum` v + `of_taken` a;
///     x ← x − `by_taken` a − `by_momentum` v.
struct MomentumRecursion {
  double momentum = 0.0;
  double of_sent = 0.0;
  double of_taken = 1.0;
  double by_taken = 0.0;
  double by_momentum = 1.0;
};

/// A factor per round that differences may reach: what lies on the bound grows by rounding alone.
inline constexpr double kMostGrowth = 1.001;
/// A factor per round from which on differences do not die out, or by a graph that is as slow.
inline constexpr double kDiesOut = 0.9995;

/// The factor by which a round multiplies differences between ranks in the long run, where there
/// are no gradients: the recursion, run for 2,000 rounds from one random number per rank. Below 1
/// where they die out.
///
/// One symmetric W in all rounds with eigenvalues above −1 never makes DecentLaM grow: v obeys
/// z² − (β + λ) z + β = 0 for each eigenvalue λ. QG-DSGDm bears eigenvalues down to about −3/4. For
/// a W that changes no such rule is known: one that is symmetric in each round may grow for all
/// that. Momentum carries what an average takes back β / (1 − β) times as far while the next ones
/// change nothing.
///
/// The same on every rank. Cost: 2,000 products with W.
[[nodiscard]] double growth_per_round(const MomentumRecursion& recursion, const Schedule& schedule);

/// The same of norms that were measured, one a round.
[[nodiscard]] double growth_of(const std::vector<double>& norms);

/// "grow by a factor of 1.2 a round" or "stay as large as they are": what differences do under the
/// recursion, where the schedule alone lets them die out. Empty where they die out.
[[nodiscard]] std::string why_differences_stay(const MomentumRecursion& recursion,
                                               const Schedule& schedule);

}  // namespace bluefog::optimizers
