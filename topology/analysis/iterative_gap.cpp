#include <Spectra/GenEigsSolver.h>
#include <Spectra/SymEigsSolver.h>

#include <Eigen/SparseCore>
#include <algorithm>
#include <cmath>
#include <complex>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <vector>

#include "topology/analysis/gap_solvers.hpp"
#include "topology/analysis/symmetric_extreme.hpp"

namespace bluefog::topology::detail {
namespace {

using Vector = Eigen::VectorXd;

constexpr int kBasis = 40;

SparseMatrix to_sparse(const MixingMatrix& matrix) {
  std::vector<Eigen::Triplet<double, int>> entries;
  entries.reserve(matrix.entry_count());
  for (int rank = 0; rank < matrix.size(); ++rank) {
    for (const WeightedRank& entry : matrix.row(rank)) {
      entries.emplace_back(rank, entry.rank, entry.weight);
    }
  }
  SparseMatrix sparse(matrix.size(), matrix.size());
  sparse.setFromTriplets(entries.begin(), entries.end());
  return sparse;
}

/// x → (W − J) x.
struct ReducedProduct {
  using Scalar = double;
  const SparseMatrix& matrix;

  [[nodiscard]] Eigen::Index rows() const { return matrix.rows(); }
  [[nodiscard]] Eigen::Index cols() const { return matrix.cols(); }
  void perform_op(const double* x, double* y) const {
    const Eigen::Map<const Vector> in(x, cols());
    Eigen::Map<Vector>(y, rows()) = (matrix * in).array() - in.mean();
  }
};

/// x → (W − J)ᵀ (W − J) x.
struct ReducedSquare {
  using Scalar = double;
  const SparseMatrix& matrix;

  [[nodiscard]] Eigen::Index rows() const { return matrix.cols(); }
  [[nodiscard]] Eigen::Index cols() const { return matrix.cols(); }
  void perform_op(const double* x, double* y) const {
    const Eigen::Map<const Vector> in(x, cols());
    const Vector image = (matrix * in).array() - in.mean();
    Eigen::Map<Vector>(y, rows()) = (matrix.transpose() * image).array() - image.mean();
  }
};

/// σ from a bound on σ².
GapEstimate gap_of_square(const Magnitude& square, double upper_bound) {
  const double root = std::sqrt(square.value);
  if (!square.converged) {
    return bounded_gap(root, upper_bound);
  }
  const double highest = std::sqrt(square.value + square.error);
  const double lowest = std::sqrt(std::max(square.value - square.error, 0.0));
  return converged_gap(root, std::max(highest - root, root - lowest));
}

/// ‖W − J‖₂² by Lanczos, where W − J has no sparse form.
Magnitude largest_square(const SparseMatrix& matrix, int restarts) {
  ReducedSquare op{matrix};
  const int basis = static_cast<int>(std::min<Eigen::Index>(kBasis, op.rows()));
  Spectra::SymEigsSolver<ReducedSquare> solver(op, 1, basis);
  solver.init();
  if (solver.compute(Spectra::SortRule::LargestAlge, restarts, 1e-8) < 1) {
    return {};
  }
  const Vector vector = solver.eigenvectors(1).col(0).normalized();
  Vector image(vector.size());
  op.perform_op(vector.data(), image.data());
  const double value = vector.dot(image);
  const double residual = (image - value * vector).norm();
  return {.value = std::max(value, 0.0),
          .error = residual + 4.0 * std::numeric_limits<double>::epsilon(),
          .converged = residual <= 1e-4 * std::max(std::abs(1.0 - value), 1e-8)};
}

/// |λ₂| by Arnoldi iterations on W − J.
std::optional<GapEstimate> largest_eigenvalue(const SparseMatrix& matrix, int restarts) {
  ReducedProduct op{matrix};
  const int basis = static_cast<int>(std::min<Eigen::Index>(kBasis, op.rows()));
  // Two values: a complex pair must not be torn apart.
  Spectra::GenEigsSolver<ReducedProduct> solver(op, 2, basis);
  solver.init();
  if (solver.compute(Spectra::SortRule::LargestMagn, restarts, 1e-9) < 2) {
    return std::nullopt;
  }
  const std::complex<double> value = solver.eigenvalues()[0];
  const Eigen::VectorXcd vector = solver.eigenvectors(1).col(0).normalized();
  const Vector real = vector.real();
  const Vector imaginary = vector.imag();
  Vector image_real(real.size());
  Vector image_imaginary(real.size());
  op.perform_op(real.data(), image_real.data());
  op.perform_op(imaginary.data(), image_imaginary.data());
  Eigen::VectorXcd image(real.size());
  image.real() = image_real;
  image.imag() = image_imaginary;
  const double residual = (image - value * vector).norm();
  if (!residual_suffices(std::abs(value), residual)) {
    return std::nullopt;
  }
  return converged_gap(std::abs(value), residual + 4.0 * std::numeric_limits<double>::epsilon());
}

bool is_normal(const SparseMatrix& matrix) {
  const SparseMatrix transposed = matrix.transpose();
  const SparseMatrix left = transposed * matrix;
  const SparseMatrix difference = left - SparseMatrix(matrix * transposed);
  double largest = 0.0;
  for (Eigen::Index k = 0; k < difference.nonZeros(); ++k) {
    largest = std::max(largest, std::abs(difference.valuePtr()[k]));
  }
  return largest <= 1e-14;
}

SpectralGap symmetric_gap(const SparseMatrix& sparse, double upper_bound,
                          const GapOptions& options) {
  const Magnitude found = symmetric_extreme(sparse, options);
  const GapEstimate gap = found.converged ? converged_gap(found.value, found.error)
                                          : bounded_gap(found.value, upper_bound);
  return {.lambda2 = gap, .norm = gap, .method = GapMethod::Iterative};
}

SpectralGap general_gap(const MixingMatrix& matrix, const SparseMatrix& sparse, double upper_bound,
                        const GapOptions& options) {
  SpectralGap gap{.lambda2 = {}, .norm = {}, .method = GapMethod::Iterative};
  const bool doubly = matrix.is_doubly_stochastic();
  const Magnitude square =
      doubly ? symmetric_extreme(SparseMatrix(SparseMatrix(sparse.transpose()) * sparse), options)
             : largest_square(sparse, options.max_restarts);
  gap.norm = gap_of_square(square, upper_bound);
  if (doubly && is_normal(sparse)) {
    gap.lambda2 = gap.norm;
    return gap;
  }
  // An eigenvalue of W − J is never above its norm.
  gap.lambda2 = largest_eigenvalue(sparse, options.max_restarts)
                    .value_or(bounded_gap(0.0, 1.0 - gap.norm.lower));
  return gap;
}

}  // namespace

SpectralGap iterative_gap(const MixingMatrix& matrix, const GapOptions& options) {
  const double upper_bound = norm_upper_bound(matrix);
  const SparseMatrix sparse = to_sparse(matrix);
  try {
    return matrix.is_symmetric() ? symmetric_gap(sparse, upper_bound, options)
                                 : general_gap(matrix, sparse, upper_bound, options);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    // The solvers throw where an iteration breaks down; that too is no result.
    const GapEstimate unknown = bounded_gap(0.0, upper_bound);
    return {.lambda2 = unknown, .norm = unknown, .method = GapMethod::Iterative};
  }
}

}  // namespace bluefog::topology::detail
