#include "optimizers/algorithms/outer/outer_steps.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "topology/one_to_one.hpp"

namespace bluefog::optimizers {

// The paper's two averages are one: W is linear, and both have the same W.
AlgorithmRow noloco_row() {
  AlgorithmRow row = outer_row_of_neighbors([](const DistributedOptimizerOptions& options) {
    return OuterMomentum{.learning_rate = number_of(options, "outer_learning_rate"),
                         .momentum = number_of(options, "outer_momentum"),
                         .consensus_share = number_of(options, "consensus_step_size")};
  });
  row.name = "noloco";
  row.equation = "x after H local steps from θ: v ← β v + α W (θ − x) + γ (θ − W θ); x, θ ← θ − v";
  row.description = "Outer steps with momentum over random pairs, without any average over all.";
  row.source = "arXiv 2506.10911";
  row.memory = {.copies = 3, .note = "2 where α = γ", .carried = "θ and v"};
  row.options = {outer_learning_rate(0.7),
                 outer_momentum(0.5),
                 {.name = "consensus_step_size",
                  .default_value = 1.0,
                  .meaning = "γ, at least 0.001",
                  .least = 0.001}};
  row.default_schedule = [](int size) { return topology::random_matching(size, 1); };
  return row;
}

}  // namespace bluefog::optimizers
