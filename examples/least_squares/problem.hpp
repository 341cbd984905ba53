#pragma once

#include <Eigen/Dense>
#include <cstdint>

#include "bluefog_cpp/context.hpp"

namespace bluefog::examples {

/// One rank's part of minimising F(x) = (1/n) Σ_i f_i(x), f_i(x) = ‖A_i x − b_i‖² / (2m).
///
/// Each rank draws an own A_i and an own b_i = A_i z_i + noise around an own z_i, so that the
/// ranks' minimisers differ: the case in which decentralized methods show their bias.
struct LeastSquaresPart {
  Eigen::MatrixXd a;  ///< m × d
  Eigen::VectorXd b;  ///< m

  /// ∇f_i(x) = A_iᵀ (A_i x − b_i) / m
  [[nodiscard]] Eigen::VectorXd gradient(const Eigen::VectorXd& x) const;
};

/// How large the problem is, and how far apart the ranks' minimisers z_i lie.
struct LeastSquaresShape {
  std::int64_t rows = 50;
  std::int64_t unknowns = 10;
  double spread = 1.0;  ///< 0 gives all ranks the same z
};

/// The part of `rank`; a function of its arguments alone.
[[nodiscard]] LeastSquaresPart make_part(const LeastSquaresShape& shape, int rank,
                                         std::uint64_t seed);

/// Collective. The minimiser of F, from the normal equations summed over ranks.
[[nodiscard]] Eigen::VectorXd minimiser(Context& context, const LeastSquaresPart& part);

/// Collective. The largest eigenvalue of F's Hessian: gradient descent on F is stable for steps
/// below 2 / L.
[[nodiscard]] double smoothness(Context& context, const LeastSquaresPart& part);

}  // namespace bluefog::examples
