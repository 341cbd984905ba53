#pragma once

#include <cstdint>
#include <optional>

#include "bluefog_cpp/context.hpp"

namespace bluefog::optimizers {

/// The place in training at which the ranks of a context go on together.
struct CommonCounts {
  std::int64_t steps = 0;   ///< of the rank that is furthest
  std::int64_t rounds = 0;  ///< likewise
  /// The steps up to there that this rank has not made, and passes over.
  std::int64_t behind = 0;
  int furthest = 0;   ///< the lowest rank that has made all of them
  int newcomers = 0;  ///< ranks that have counted none of them
  /// Whether graphs begin anew, since ranks are new: to any of them, where a meeting was interrupted
  /// when others had ended it.
  bool has_grown = false;
  std::int64_t growths = 0;  ///< how often that was so
};

/// A rank's own counts.
struct OwnCounts {
  std::int64_t steps = 0;
  std::int64_t rounds = 0;
  std::int64_t growths = 0;    ///< as of the group before
  std::int64_t has_grown = 0;  ///< 1: since that
};

/// Collective. @param own nothing of a rank that is new, and goes on where the others do.
/// Cost: one all-gather of 32 bytes. @throws StateError where all are new.
[[nodiscard]] CommonCounts agree_on_counts(Context& context, const std::optional<OwnCounts>& own);

}  // namespace bluefog::optimizers
