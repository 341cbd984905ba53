#pragma once

#include <optional>

#include "topology/mixing_matrix.hpp"

/// @file
/// Builders of the usual static graphs. Each is doubly stochastic, gives the
/// identity for one rank, and throws InvalidArgument if `size` < 1.
namespace bluefog::topology {

/// The neighbours that a rank of a ring sends to.
enum class RingStyle {
  Both,   ///< the two next to it
  Left,   ///< the rank below it
  Right,  ///< the rank above it
};

/// Extents of a two-dimensional grid; rank = row · columns + column.
struct GridShape {
  int rows = 1;     ///< at least 1
  int columns = 1;  ///< at least 1

  /// Memberwise.
  friend bool operator==(const GridShape&, const GridShape&) = default;
};

/// Rank i sends to i + base^k mod n for every base^k < n; all weights equal.
/// With base 2 and even n both spectral gaps are 2 / (1 + ⌈log₂ n⌉)
/// (arXiv 2110.13363). Answers to BlueFog's `ExponentialGraph`.
/// @throws InvalidArgument if `base` < 2.
[[nodiscard]] MixingMatrix exponential(int size, int base = 2);

/// Distances that are powers of the base in both directions, up to half the
/// ring; all weights equal. Answers to BlueFog's `SymmetricExponentialGraph`.
/// @throws InvalidArgument if `base` < 2.
[[nodiscard]] MixingMatrix symmetric_exponential(int size, int base = 4);

/// Both: weights 1/3 with i − 1 and i + 1 (1/2 for two ranks). Left: i sends
/// to i − 1, Right: i sends to i + 1, weights 1/2. Answers to BlueFog's
/// `RingGraph` with connect_style 0, 1, 2.
[[nodiscard]] MixingMatrix ring(int size, RingStyle style = RingStyle::Both);

/// Grid without wrap-around: weight 1 / (1 + max(d_i, d_j)) for neighbours of
/// degrees d_i and d_j, the rest for self (Metropolis–Hastings). Answers to
/// BlueFog's `MeshGrid2DGraph`.
/// @param shape default: `closest_factors(size)`.
/// @throws InvalidArgument if rows · columns is not `size`.
[[nodiscard]] MixingMatrix mesh_2d(int size, std::optional<GridShape> shape = std::nullopt);

/// Grid that wraps around in both directions; all weights equal over self and
/// the distinct neighbours. Errors as `mesh_2d`.
[[nodiscard]] MixingMatrix torus_2d(int size, std::optional<GridShape> shape = std::nullopt);

/// Everybody exchanges with `center`, weight 1/n on each edge, the rest for
/// self. Answers to BlueFog's `StarGraph`.
/// @throws InvalidArgument if `center` is no rank.
[[nodiscard]] MixingMatrix star(int size, int center = 0);

/// Every weight 1/n: W = J, one step averages exactly.
[[nodiscard]] MixingMatrix fully_connected(int size);

/// Ranks that differ in one bit are neighbours; weights 1 / (1 + log₂ n).
/// @throws InvalidArgument if `size` is not a power of two.
[[nodiscard]] MixingMatrix hypercube(int size);

/// The factors of `size` that are closest to each other, rows ≤ columns.
[[nodiscard]] GridShape closest_factors(int size);

}  // namespace bluefog::topology
