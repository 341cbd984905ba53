#pragma once

#include <Eigen/Dense>
#include <cstdint>
#include <vector>

#include "bluefog_cpp/transport/context.hpp"
#include "examples/least_squares/problem.hpp"
#include "topology/schedule.hpp"

namespace bluefog::examples {

enum class Method {
  GradientAllreduce,  ///< x ← x − γ · mean of all ranks' gradients
  Atc,                ///< x ← W (x − γ ∇f_i(x))
  Awc,                ///< x ← W x − γ ∇f_i(x)
};

[[nodiscard]] const char* name_of(Method method);

/// Collective. Runs `steps` steps of `method` from zero with exact gradients.
/// @return after each step the error √(Σ_i ‖x_i − x*‖² / n) / ‖x*‖; the same on every rank.
[[nodiscard]] std::vector<double> run_method(Context& context, Method method,
                                             const LeastSquaresPart& part,
                                             const Eigen::VectorXd& solution,
                                             const Schedule& schedule, double step_size,
                                             std::int64_t steps);

}  // namespace bluefog::examples
