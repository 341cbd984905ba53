#pragma once

#include <Eigen/Dense>
#include <cstdint>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "examples/common/named_algorithm.hpp"
#include "examples/least_squares/problem.hpp"

namespace bluefog::examples {

/// Collective. Runs `steps` steps of plain SGD under a distributed optimizer, from zero and with
/// exact gradients.
/// @return after each step the error √(Σ_i ‖x_i − x*‖² / n) / ‖x*‖; the same on every rank.
[[nodiscard]] std::vector<double> run_method(Context& context,
                                             const CommunicationOptions& communication,
                                             const LeastSquaresPart& part,
                                             const Eigen::VectorXd& solution, double step_size,
                                             std::int64_t steps);

}  // namespace bluefog::examples
