#pragma once

#include <cstdint>

namespace bluefog::optimizers {

/// The ranks over which a round of adapt-then-combine or adapt-with-combine averages.
enum class Averaging : std::uint8_t {
  /// The plan's neighbours: x ← W x.
  Neighbors,
  /// The ranks of each machine, then neighbouring machines; the plan is this machine's part
  /// (`ops::hierarchical_neighbor_allreduce`).
  Machines,
  /// All ranks: x ← J x.
  Everybody,
  /// Nobody: the step is a local one.
  Nobody,
  /// The earlier name of `Everybody`, for one release.
  Global [[deprecated("use Everybody")]] = Everybody,
};

}  // namespace bluefog::optimizers
