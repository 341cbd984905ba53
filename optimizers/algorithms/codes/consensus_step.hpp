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
/// out with. Empty where they do, and where κ is 0: `chosen_step` looks for one then. A schedule that
/// does not let them die out by itself need not.
/// @param others "outer_momentum 0.9, ": options beside code and κ that matter; none: momentum has no
///   part in it.
[[nodiscard]] std::string why_unfit_step(const DistributedOptimizerOptions& options,
                                         const CodedRounds& rounds, std::string_view others);

/// κ where the options leave it to the algorithm, else nothing. @param others as above.
/// @throws InvalidArgument where there is none with which differences die out, or the code fails.
[[nodiscard]] std::vector<ChosenNumber> chosen_step(const DistributedOptimizerOptions& options,
                                                    const CodedRounds& rounds,
                                                    std::string_view others);

}  // namespace bluefog::optimizers
