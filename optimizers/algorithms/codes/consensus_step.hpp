#pragma once

#include <string>
#include <string_view>

#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/codes/coded_rounds.hpp"

namespace bluefog::optimizers {

/// The option `consensus_step_size` of algorithms that average by CHOCO, κ; 0, its default: the one of
/// 1, ½, ¼, …, 1/512 that leaves least of differences in a trial (`try_coded_rounds`).
[[nodiscard]] AlgorithmOption consensus_step_option();

/// A code that keeps this share of a vector or more (`Compression::contraction`) follows plain gossip
/// so closely that it needs no trial with κ up to 1.
inline constexpr double kKeepsNearlyAll = 0.99;

/// Why differences between ranks would not die out with the options' κ, with one that they would die
/// out with. Empty where they do, and where κ is 0 and the code cannot fail: `consensus_step_of` looks
/// for one then. A schedule that does not let them die out by itself need not.
/// @param others "outer_momentum 0.9, ": options beside code and κ that matter; none: momentum has no
///   part in it.
[[nodiscard]] std::string why_unfit_step(const DistributedOptimizerOptions& options,
                                         const CodedRounds& rounds, std::string_view others);

/// κ of an algorithm that is made, whose options `why_unfit_step` has found fit. A κ below 1 that was
/// chosen for them is told on rank 0, as information. @param others as above.
/// @throws InvalidArgument, on all ranks, where κ is 0 and none is found.
[[nodiscard]] double consensus_step_of(const AlgorithmParts& parts, const CodedRounds& rounds,
                                       std::string_view others);

}  // namespace bluefog::optimizers
