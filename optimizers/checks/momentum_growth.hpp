#pragma once

#include "optimizers/options.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// The factor by which a round multiplies differences between ranks in the long run, where there
/// are no gradients: the recursions of `DecentLam` and `QuasiGlobalMomentum` with d = 0, run for
/// 2,000 rounds from one random number per rank. Around 1 or below where they die out.
///
/// One symmetric W in all rounds with eigenvalues above −1 never makes DecentLaM grow: v obeys
/// z² − (β + λ) z + β = 0 for each eigenvalue λ. QG-DSGDm bears eigenvalues down to about −3/4.
/// Where W changes no such rule is known: a W that is symmetric in each round may grow for all
/// that. What an average takes back is carried on β / (1 − β) times as far while the next ones
/// change nothing.
///
/// The same on every rank. Cost: 2,000 products with W.
/// @param kind DecentLam or QuasiGlobalMomentum.
[[nodiscard]] double growth_per_round(AlgorithmKind kind, double momentum,
                                      const Schedule& schedule);

}  // namespace bluefog::optimizers
