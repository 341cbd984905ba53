#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "topology/analysis/gap_solvers.hpp"

namespace bluefog::topology::detail {
namespace {

using Matrix = Eigen::MatrixXd;

/// An eigenvalue that a rounding error moves by more than this is not known.
constexpr double kMaxError = 1e-4;

Matrix minus_mean(const MixingMatrix& matrix) {
  const int size = matrix.size();
  const std::vector<double> dense = matrix.to_dense();
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Matrix result = Eigen::Map<const RowMajor>(dense.data(), size, size);
  result.array() -= 1.0 / size;
  return result;
}

double rounding_error(const Matrix& matrix) {
  return 4.0 * std::numeric_limits<double>::epsilon() *
         std::sqrt(static_cast<double>(matrix.rows())) * std::max(matrix.norm(), 1.0);
}

/// Index of the eigenvalue that `better` prefers to all others.
template <typename Values, typename Better>
Eigen::Index best_of(const Values& values, Better better) {
  Eigen::Index best = 0;
  for (Eigen::Index k = 1; k < values.size(); ++k) {
    if (better(values[k], values[best])) {
      best = k;
    }
  }
  return best;
}

/// |yᴴ x| of the unit left and right eigenvectors: by how much a perturbation
/// of the matrix is divided, at worst, before it moves the eigenvalue.
double conditioning(const Matrix& matrix, std::complex<double> eigenvalue,
                    const Eigen::VectorXcd& right) {
  const Eigen::EigenSolver<Matrix> adjoint(matrix.transpose());
  const Eigen::Index match =
      best_of(adjoint.eigenvalues(), [&](std::complex<double> a, std::complex<double> b) {
        return std::abs(a - eigenvalue) < std::abs(b - eigenvalue);
      });
  // Left eigenvectors are the conjugates of the transpose's right ones.
  const Eigen::VectorXcd left = adjoint.eigenvectors().col(match).conjugate();
  return std::abs(left.dot(right)) / (left.norm() * right.norm());
}

bool is_normal(const Matrix& matrix, double error) {
  return (matrix * matrix.transpose() - matrix.transpose() * matrix).norm() <= 4.0 * error;
}

/// Largest singular value: that of A is the largest eigenvalue of [0 A; Aᵀ 0], to the same
/// accuracy. An SVD proper would take most of this file's time to compile.
double spectral_norm(const Matrix& matrix) {
  const Eigen::Index size = matrix.rows();
  Matrix both = Matrix::Zero(2 * size, 2 * size);
  both.topRightCorner(size, size) = matrix;
  both.bottomLeftCorner(size, size) = matrix.transpose();
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(both, Eigen::EigenvaluesOnly);
  return solver.eigenvalues().maxCoeff();
}

SpectralGap general_gap(const Matrix& matrix, double error) {
  const double norm = spectral_norm(matrix);
  SpectralGap gap{.lambda2 = {}, .norm = converged_gap(norm, error), .method = GapMethod::Dense};
  if (is_normal(matrix, error)) {
    gap.lambda2 = gap.norm;
    return gap;
  }
  const Eigen::EigenSolver<Matrix> solver(matrix);
  const auto larger = [](std::complex<double> a, std::complex<double> b) {
    return std::abs(a) > std::abs(b);
  };
  const Eigen::Index best = best_of(solver.eigenvalues(), larger);
  const std::complex<double> eigenvalue = solver.eigenvalues()[best];
  const double moved = error / conditioning(matrix, eigenvalue, solver.eigenvectors().col(best));
  const bool known = solver.info() == Eigen::Success && moved <= kMaxError;
  gap.lambda2 = known ? converged_gap(std::abs(eigenvalue), moved) : bounded_gap(0.0, norm + error);
  return gap;
}

}  // namespace

SpectralGap dense_gap(const MixingMatrix& matrix) {
  const Matrix reduced = minus_mean(matrix);
  const double error = rounding_error(reduced);
  if (!matrix.is_symmetric()) {
    return general_gap(reduced, error);
  }
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(reduced, Eigen::EigenvaluesOnly);
  const GapEstimate gap = converged_gap(solver.eigenvalues().cwiseAbs().maxCoeff(), error);
  return {.lambda2 = gap, .norm = gap, .method = GapMethod::Dense};
}

}  // namespace bluefog::topology::detail
