#pragma once

#include <cstdint>

namespace bluefog::optimizers {

/// A neighbour whose values came late, with algorithms that go on without waiting for all of them
/// (`win_put` with `grace_s` or `staleness_bound`). Counted since the optimizer was made, or since
/// ranks were lost or joined.
struct LateRank {
  int rank = 0;             ///< the neighbour, one that this rank hears
  std::int64_t rounds = 0;  ///< rounds of this rank in which its value of that round was missing
  std::int64_t rounds_without = 0;  ///< those of them that averaged without it
  std::int64_t oldest = 0;          ///< the greatest age of a value that was averaged, in rounds
};

}  // namespace bluefog::optimizers
