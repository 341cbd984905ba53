#pragma once

#include <optional>

#include "topology/spectral_gap.hpp"

/// The ways that `spectral_gap` chooses between. Each expects a matrix that it
/// has checked.
namespace bluefog::topology::detail {

/// `magnitude` with an absolute error bound, as the gap 1 − magnitude.
[[nodiscard]] GapEstimate converged_gap(double magnitude, double error);
/// Only 1 − upper_magnitude ≤ gap ≤ 1 − lower_magnitude is known.
[[nodiscard]] GapEstimate bounded_gap(double lower_magnitude, double upper_magnitude);

/// The row that all rows are shifts of modulo n, if there is one.
[[nodiscard]] std::optional<TranslationPattern> detect_circulant(const MixingMatrix& matrix);

/// W = I − w L, with L the Laplacian of a star of n ≥ 4 ranks: the eigenvalues of L are 0, 1 (n − 2
/// times) and n, so those of W are 1, 1 − w and 1 − n w. Nothing for any other matrix.
[[nodiscard]] std::optional<SpectralGap> star_gap(const MixingMatrix& matrix);

[[nodiscard]] SpectralGap fourier_gap(const TranslationPattern& pattern);
[[nodiscard]] SpectralGap dense_gap(const MixingMatrix& matrix);
[[nodiscard]] SpectralGap iterative_gap(const MixingMatrix& matrix, const GapOptions& options);

/// √(‖W − J‖₁ ‖W − J‖_∞), bounded through the sums of |W|: never below the
/// 2-norm.
[[nodiscard]] double norm_upper_bound(const MixingMatrix& matrix);

}  // namespace bluefog::topology::detail
