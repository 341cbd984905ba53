#include "optimizers/algorithms/outer/outer_steps.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"

namespace bluefog::optimizers {

// The paper divides by the step size and multiplies by it again: the same while that stays.
AlgorithmRow slowmo_row() {
  AlgorithmRow row = outer_row_of_all_ranks(
      [](const DistributedOptimizerOptions& options) {
        const double learning_rate = number_of(options, "outer_learning_rate");
        return OuterMomentum{.learning_rate = learning_rate,
                             .momentum = number_of(options, "outer_momentum"),
                             .consensus_share = learning_rate};
      },
      Between::Gossip);
  row.name = "slowmo";
  row.equation = "x ← W (x − γ d), every H rounds G = θ − J (x − γ d); v ← β v + α G; x, θ ← θ − v";
  row.description = "Gossip-PGA with slow momentum over what H rounds have changed.";
  row.source = "arXiv 1910.00643";
  row.memory = {.copies = 2, .carried = "θ and v"};
  const AlgorithmRow without_momentum = gossip_pga_row();
  row.options = without_momentum.options;
  row.options.push_back(outer_learning_rate(1.0));
  row.options.push_back(outer_momentum(0.5));
  return row;
}

}  // namespace bluefog::optimizers
