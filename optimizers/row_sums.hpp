#pragma once

#include <cstdint>

namespace bluefog::optimizers {

/// The sums of W's rows that a round may average with, where the algorithm says nothing of them
/// itself (`Stochastic::Averages`). Row i is what rank i computes.
enum class RowSums : std::uint8_t {
  /// 1, up to 1e-6: ranks that agree keep what they agree on. Another sum is an error.
  One,
  /// Any: a round multiplies what ranks agree on by the sum of their row.
  Any,
};

}  // namespace bluefog::optimizers
