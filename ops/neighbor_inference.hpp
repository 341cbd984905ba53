#pragma once

#include <vector>

#include "bluefog_cpp/context.hpp"
#include "topology/mixing_matrix.hpp"

namespace bluefog::ops {

/// The side of the edges that a rank did not know, and the graph that all ranks' edges make.
struct InferredNeighbors {
  /// Rising.
  std::vector<int> ranks;
  /// Rank i gives the weight 1 / (1 + number of its sources) to itself and to each of them. The
  /// same on all ranks.
  MixingMatrix matrix;
};

/// Collective. The ranks that send to this one, where each rank knows whom it sends to.
/// @param destinations other ranks, each once, in any order; may be empty.
/// Every rank calls it, in the same order as its other calls.
/// Cost per rank: n−1 messages of 8 bytes, and n−1 of 4 bytes for each of its destinations.
/// @throws InvalidArgument for a rank that is out of range, this rank itself, or named twice; the
///   other ranks get PeerFailure.
/// Source: BlueFog's `InferSourceFromDestinationRanks`, whose adjacency matrix is `matrix`
///   transposed.
[[nodiscard]] InferredNeighbors infer_sources(Context& context,
                                              const std::vector<int>& destinations);

/// Collective. The ranks to send to, where each rank knows whom it hears. Else as above.
/// Source: BlueFog's `InferDestinationFromSourceRanks`.
[[nodiscard]] InferredNeighbors infer_destinations(Context& context,
                                                   const std::vector<int>& sources);

}  // namespace bluefog::ops
