#pragma once

#include <functional>
#include <span>

#include "ops/compression.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// Rounds whose ranks average by CHOCO with a code, where there are no gradients.
struct CodedRounds {
  /// What one rank's values θ become by their average, and v, which it carries and begins with zeros.
  using Update = std::function<void(std::span<double> theta, std::span<double> carried,
                                    std::span<const double> average)>;

  const Schedule& schedule;             ///< W of each round
  const ops::Compression& compression;  ///< C of what ranks send
  Update update;                        ///< of each rank, in each round
};

/// What a trial of such rounds has done to differences between ranks.
struct CodedTrial {
  double growth = 0.0;       ///< the factor of a round, of its second half beside the first
  double late_growth = 0.0;  ///< the same of its last quarter beside the third
  double left = 0.0;         ///< the largest norm of its last quarter, of the first one
};

/// Makes such rounds with vectors of 4,096 random numbers and the code itself, whose copies begin at
/// zeros: as if all that ranks have to tell each other were new. A code's error grows with what κ and
/// momentum make of it, which no rule of W tells. All zeros where differences have died out; the same
/// on every rank.
///
/// Cost: up to 400 rounds of up to 32 ranks, fewer of more (60 at least), about 0.3 s; 32 MiB, for
/// which vectors are shorter (256 at least) where ranks and matrices of the schedule are many.
[[nodiscard]] CodedTrial try_coded_rounds(const CodedRounds& rounds, double consensus_step_size);

}  // namespace bluefog::optimizers
