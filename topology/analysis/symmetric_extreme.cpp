#include "topology/analysis/symmetric_extreme.hpp"

#include <Spectra/SymEigsSolver.h>

#include <Eigen/SparseCholesky>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace bluefog::topology::detail {
namespace {

using Vector = Eigen::VectorXd;

constexpr int kLanczosBasis = 40;
constexpr int kInverseBasis = 20;
/// Factors with at most so many non-zeros per rank cost less than Lanczos.
constexpr std::int64_t kCheapFill = 100;
/// Distance of the factorised matrix from singular: below the gap of a ring of
/// 100,000 ranks, above rounding errors.
constexpr double kShift = 1e-10;

Vector without_mean(const Vector& x) { return x.array() - x.mean(); }

/// x → P S x with P the projection off the constant vector.
struct ProjectedProduct {
  using Scalar = double;
  const SparseMatrix& matrix;

  [[nodiscard]] Eigen::Index rows() const { return matrix.rows(); }
  [[nodiscard]] Eigen::Index cols() const { return matrix.cols(); }
  void perform_op(const double* x, double* y) const {
    const Eigen::Map<const Vector> in(x, rows());
    Eigen::Map<Vector>(y, rows()) = without_mean(matrix * without_mean(in));
  }
};

/// x → P A⁻¹ P x.
struct ProjectedInverse {
  using Scalar = double;
  const Eigen::SimplicialLDLT<SparseMatrix>& factor;

  [[nodiscard]] Eigen::Index rows() const { return factor.rows(); }
  [[nodiscard]] Eigen::Index cols() const { return factor.cols(); }
  void perform_op(const double* x, double* y) const {
    const Eigen::Map<const Vector> in(x, rows());
    const Vector solved = factor.solve(without_mean(in));
    Eigen::Map<Vector>(y, rows()) = without_mean(solved);
  }
};

/// The wanted eigenvector of `op`, or nothing within the restarts.
template <typename Operator>
std::optional<Vector> leading_vector(Operator op, Spectra::SortRule rule, int basis_limit,
                                     double tolerance, int restarts, const Vector* start) {
  const int basis = static_cast<int>(std::min<Eigen::Index>(basis_limit, op.rows()));
  Spectra::SymEigsSolver<Operator> solver(op, 1, basis);
  if (start) {
    solver.init(start->data());
  } else {
    solver.init();
  }
  if (solver.compute(rule, restarts, tolerance) < 1) {
    return std::nullopt;
  }
  return solver.eigenvectors(1).col(0);
}

/// Rayleigh quotient of `vector` and the residual that bounds its distance
/// from an eigenvalue of S off the constant vector.
Magnitude rayleigh(const SparseMatrix& matrix, const Vector& vector) {
  const Vector unit = without_mean(vector).normalized();
  const Vector image = without_mean(matrix * unit);
  const double quotient = unit.dot(image);
  const double residual = (image - quotient * unit).norm();
  const double rounding = 4.0 * std::numeric_limits<double>::epsilon();
  return {.value = std::abs(quotient),
          .error = residual + rounding,
          .converged = residual_suffices(std::abs(quotient), residual)};
}

/// First roughly, then as exactly as the gap that was found asks for.
Magnitude by_lanczos(const SparseMatrix& matrix, int restarts) {
  constexpr double kRough = 1e-3;
  const ProjectedProduct op{matrix};
  const auto rule = Spectra::SortRule::LargestMagn;
  const auto rough = leading_vector(op, rule, kLanczosBasis, kRough, restarts, nullptr);
  if (!rough) {
    return {};
  }
  const Magnitude first = rayleigh(matrix, *rough);
  if (first.converged) {
    return first;
  }
  const double tolerance = std::max(1e-14, 1e-5 * (1.0 - first.value));
  const auto fine = leading_vector(op, rule, kLanczosBasis, tolerance, restarts, &*rough);
  if (!fine) {
    return first;
  }
  const Magnitude second = rayleigh(matrix, *fine);
  return second.value >= first.value || second.converged ? second : first;
}

/// The eigenvalue of sign · S that is nearest below 1, by inverse iteration.
Magnitude by_inverse(const SparseMatrix& matrix, double sign, int restarts) {
  SparseMatrix shifted(matrix.rows(), matrix.cols());
  shifted.setIdentity();
  shifted = (1.0 + kShift) * shifted - sign * matrix;
  const Eigen::SimplicialLDLT<SparseMatrix> factor(shifted);
  if (factor.info() != Eigen::Success) {
    return {};
  }
  const auto vector = leading_vector(ProjectedInverse{factor}, Spectra::SortRule::LargestAlge,
                                     kInverseBasis, 1e-8, restarts, nullptr);
  return vector ? rayleigh(matrix, *vector) : Magnitude{};
}

/// No eigenvalue lies below this (Gershgorin).
double lower_end(const SparseMatrix& matrix) {
  double lowest = std::numeric_limits<double>::infinity();
  for (Eigen::Index k = 0; k < matrix.outerSize(); ++k) {
    double centre = 0.0;
    double radius = 0.0;
    for (SparseMatrix::InnerIterator entry(matrix, k); entry; ++entry) {
      (entry.row() == k ? centre : radius) +=
          entry.row() == k ? entry.value() : std::abs(entry.value());
    }
    lowest = std::min(lowest, centre - radius);
  }
  return lowest;
}

Magnitude by_inverse_at_both_ends(const SparseMatrix& matrix, int restarts) {
  const Magnitude top = by_inverse(matrix, 1.0, restarts);
  if (top.converged && -lower_end(matrix) <= top.value) {
    return top;
  }
  const Magnitude bottom = by_inverse(matrix, -1.0, restarts);
  Magnitude larger = top.value >= bottom.value ? top : bottom;
  larger.converged = top.converged && bottom.converged;
  return larger;
}

}  // namespace

bool residual_suffices(double value, double residual) {
  return residual <= 1e-12 || residual <= 1e-4 * (1.0 - value);
}

Magnitude symmetric_extreme(const SparseMatrix& matrix, const GapOptions& options) {
  const std::int64_t fill = count_fill(matrix, options.max_fill);
  const bool can_factor = fill <= options.max_fill;
  if (can_factor && fill <= kCheapFill * matrix.rows()) {
    return by_inverse_at_both_ends(matrix, options.max_restarts);
  }
  const Magnitude found = by_lanczos(matrix, options.max_restarts);
  if (found.converged || !can_factor) {
    return found;
  }
  const Magnitude exact = by_inverse_at_both_ends(matrix, options.max_restarts);
  return exact.converged || exact.value > found.value ? exact : found;
}

}  // namespace bluefog::topology::detail
