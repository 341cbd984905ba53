#pragma once

#include "topology/mixing_matrix.hpp"

namespace bluefog::topology {

/// An eigenvalue and its bounds.
struct EigenvalueEstimate {
  double value = 0.0;
  /// The eigenvalue lies within value ± error if converged, else at or below value.
  double error = 0.0;
  bool converged = false;
};

/// The smallest eigenvalue of a symmetric W with rows that sum to 1: how far one step overshoots in
/// the direction in which neighbours differ most. From −1 to 1 where weights are not negative.
///
/// Cost: n³ up to 400 ranks; beyond, some hundred products with W or a sparse factorisation.
/// @throws InvalidArgument if W is not symmetric or a row does not sum to 1 ± 1e-6, naming it; or
///   beyond 200 million entries.
[[nodiscard]] EigenvalueEstimate least_eigenvalue(const MixingMatrix& matrix);

}  // namespace bluefog::topology
