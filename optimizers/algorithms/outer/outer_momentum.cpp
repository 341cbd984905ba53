#include "optimizers/algorithms/outer/outer_momentum.hpp"

namespace bluefog::optimizers {

OuterMomentum OuterMomentum::nesterov(const DistributedOptimizerOptions& options) {
  const double learning_rate = number_of(options, "outer_learning_rate");
  return {.learning_rate = learning_rate,
          .momentum = number_of(options, "outer_momentum"),
          .consensus_share = learning_rate,
          .form = MomentumForm::Nesterov};
}

MomentumRecursion OuterMomentum::without_gradients() const {
  const bool is_nesterov = form == MomentumForm::Nesterov;
  return {.momentum = momentum,
          .of_taken = consensus_share,
          .by_taken = is_nesterov ? consensus_share : 0.0,
          .by_momentum = is_nesterov ? momentum : 1.0};
}

AlgorithmOption outer_learning_rate(double default_value) {
  return {.name = "outer_learning_rate",
          .default_value = default_value,
          .meaning = "α, from 0 to below 10",
          .least = 0.0,
          .below = 10.0};
}

AlgorithmOption outer_momentum(double default_value) {
  return {.name = "outer_momentum",
          .default_value = default_value,
          .meaning = "β, from 0 to below 1",
          .least = 0.0,
          .below = 1.0};
}

}  // namespace bluefog::optimizers
