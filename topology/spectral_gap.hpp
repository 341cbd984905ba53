#pragma once

#include <cstdint>
#include <string_view>

#include "topology/mixing_matrix.hpp"

namespace bluefog::topology {

/// How a spectral gap was found, or is to be found.
enum class GapMethod {
  /// Fourier where all rows are shifts of each other, the closed form of a star, dense up to
  /// `GapOptions::dense_limit` ranks, else iterative.
  Automatic,
  /// Fourier sums of the one row of a translation-invariant matrix (ring,
  /// exponential, torus, hypercube, complete graph …): O(entries) work.
  Fourier,
  /// All eigenvalues and singular values of the dense matrix.
  Dense,
  /// Lanczos or Arnoldi iterations, on the inverse of a sparse factorisation
  /// where that stays sparse.
  Iterative,
  /// No computation: a graph in several parts never averages.
  Disconnected,
  /// No computation: the matrix is J up to rounding (`check` of topology_report.hpp).
  Residual,
  /// No computation: equal weights on all edges of a star have a closed form.
  Star,
};

/// "Fourier", "dense", …, as messages and `bftopo` write it.
[[nodiscard]] std::string_view name_of(GapMethod method);

/// A number and its bounds.
struct GapEstimate {
  /// The gap; NaN unless `converged`.
  double value = 0.0;
  /// The gap lies in lower … upper. Converged: `value` and its residual bound. Not converged: the
  /// bounds that are certain all the same, from norms below and Rayleigh quotients above.
  double lower = 0.0;
  double upper = 1.0;      ///< the other bound
  bool converged = false;  ///< whether `value` was found
};

/// How fast repeated averaging with W reaches consensus, J = 1 1ᵀ / n.
struct SpectralGap {
  /// 1 − |λ₂|, with λ₂ the second largest eigenvalue of W by modulus: the rate
  /// in the long run. One rank: 1.
  GapEstimate lambda2;
  /// 1 − ‖W − J‖₂, the guarantee of a single step. At most 1 − |λ₂|, equal to it if W is normal;
  /// negative if a step can increase the distance.
  GapEstimate norm;
  GapMethod method = GapMethod::Automatic;  ///< the way in which both were found

  /// Whether both gaps were found.
  [[nodiscard]] bool converged() const { return lambda2.converged && norm.converged; }
};

/// The way to find a spectral gap, and how long to look for it.
struct GapOptions {
  GapMethod method = GapMethod::Automatic;  ///< Automatic, Fourier, Dense or Iterative
  /// Largest number of ranks for the dense solver.
  int dense_limit = 400;
  /// Restarts of an iteration before it is given up as not converged.
  int max_restarts = 30;
  /// Largest number of non-zeros in a sparse factor.
  std::int64_t max_fill = 10'000'000;
};

/// Both spectral gaps of a row- or column-stochastic W.
///
/// Circulant matrices are recognised also if given as rows. Cost: Fourier n · entries per row;
/// dense n³; iterative a few hundred products with W and at most one sparse factorisation per end
/// of the spectrum. A converged iterative value is an eigenvalue up to its bounds (to first order
/// for matrices that are not normal). No proof excludes a larger one: that rests on the random
/// start vector, which is the same in every run.
///
/// @throws InvalidArgument if neither rows nor columns sum to 1 ± 1e-6, naming
///   a row; if `options.method` is Fourier and W is not translation-invariant,
///   Disconnected, Residual or Star, Dense beyond 5,000 ranks, or Iterative beyond 200 million
///   entries.
[[nodiscard]] SpectralGap spectral_gap(const MixingMatrix& matrix, const GapOptions& options = {});

}  // namespace bluefog::topology
