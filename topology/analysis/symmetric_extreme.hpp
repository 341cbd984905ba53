#pragma once

#include <Eigen/SparseCore>
#include <cstdint>

#include "topology/spectral_gap.hpp"

namespace bluefog::topology::detail {

using SparseMatrix = Eigen::SparseMatrix<double, Eigen::ColMajor, int>;

/// A magnitude and its bounds: it lies within value ± error if converged, else at or above value.
struct Magnitude {
  double value = 0.0;
  double error = 0.0;
  bool converged = false;
};

/// True if a residual is small enough for 1 − |value|: 1e-4 of the gap, or nearly nothing.
[[nodiscard]] bool residual_suffices(double value, double residual);

/// Largest |eigenvalue| of a symmetric matrix of which the constant vector is an eigenvector, that
/// vector left out. If their sparse factors are cheap, by the inverses of 1 + δ ∓ S, which separate
/// even the crowded end of a long ring's spectrum. Else by Lanczos on S itself, and if that does
/// not converge by the inverses after all, up to `options.max_fill`.
[[nodiscard]] Magnitude symmetric_extreme(const SparseMatrix& matrix, const GapOptions& options);

/// Non-zeros in the Cholesky factor of the symmetric `matrix` under a
/// fill-reducing order, counted no further than `limit` + 1.
[[nodiscard]] std::int64_t count_fill(const SparseMatrix& matrix, std::int64_t limit);

}  // namespace bluefog::topology::detail
