#pragma once

#include "topology/mixing_matrix.hpp"

namespace bluefog::topology {

/// W with a larger share for oneself,
///
///     s I + (1 − s) W,
///
/// which has the same edges and keeps row sums, column sums and symmetry. Every eigenvalue λ
/// becomes s + (1 − s) λ: those of a doubly stochastic W, at least −1, end at 2s − 1 or above.
/// @param self_share s, from 0 (W itself) to below 1.
/// @throws InvalidArgument for another share.
[[nodiscard]] MixingMatrix lazy(const MixingMatrix& matrix, double self_share = 0.5);

}  // namespace bluefog::topology
