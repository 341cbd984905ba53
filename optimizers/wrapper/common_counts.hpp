#pragma once

#include <cstdint>

#include "bluefog_cpp/context.hpp"

namespace bluefog::optimizers {

/// The place in training at which the ranks of a context go on together.
struct CommonCounts {
  std::int64_t steps = 0;   ///< of the rank that is furthest
  std::int64_t rounds = 0;  ///< likewise
  /// The steps up to there that this rank has not made, and passes over.
  std::int64_t behind = 0;
  int furthest = 0;  ///< the lowest rank that has made all of them
};

/// Collective. @param steps, rounds this rank's own counts.
/// Cost: one all-gather of 16 bytes.
[[nodiscard]] CommonCounts agree_on_counts(Context& context, std::int64_t steps,
                                           std::int64_t rounds);

}  // namespace bluefog::optimizers
