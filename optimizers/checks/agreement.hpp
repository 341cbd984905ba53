#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/context.hpp"

namespace bluefog::optimizers {

/// A rank's part of `check_ranks_agree`.
struct Statement {
  /// One line for each thing that must be equal on all ranks, in order.
  std::vector<std::string> lines;
  /// Why this rank cannot take part; empty if it can.
  std::string problem;
};

/// Collective. Compares what the ranks state before they rely on it.
/// Cost: one all-gather of 16 bytes; on disagreement another one of the texts.
/// @param subject what is compared, for messages ("DistributedOptimizer").
/// @throws InvalidArgument on the ranks that have a problem, PeerFailure naming rank and problem
///   on the others.
/// @throws MismatchError naming the first line that differs, on both ranks; all ranks say the same.
void check_ranks_agree(Context& context, std::string_view subject, const Statement& statement);

}  // namespace bluefog::optimizers
