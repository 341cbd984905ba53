// DiLoCo: over all ranks, and over the ranks of a round.
#include <string>

#include "optimizers/algorithms/outer/outer_steps.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "topology/one_to_one.hpp"

namespace bluefog::optimizers {
AlgorithmRow diloco_row() {
  AlgorithmRow row = outer_row_of_all_ranks(OuterMomentum::nesterov);
  row.name = "diloco";
  row.equation = "x after H local steps from θ: G = θ − J x; v ← β v + G; x, θ ← θ − α (G + β v)";
  row.description =
      "Outer steps with Nesterov's momentum over all ranks, every `num_steps_per_communication` "
      "steps.";
  row.source = "arXiv 2311.08105";
  row.memory = {.copies = 2, .carried = "θ and v"};
  row.options = {outer_learning_rate(0.7), outer_momentum(0.9)};
  row.mixing = {.stochastic = Stochastic::Any, .note = "none: averages over all ranks"};
  return row;
}

AlgorithmRow gossip_diloco_row() {
  AlgorithmRow row = outer_row_of_neighbors(OuterMomentum::nesterov);
  row.why_unfit_schedule = [of_rule = row.why_unfit_schedule](
                               const DistributedOptimizerOptions& options,
                               const Schedule& schedule) {
    return options.compression || !options.numbers.contains("consensus_step_size")
               ? of_rule(options, schedule)
               : std::string(
                     "consensus_step_size: expected a compression, whose it is, found none");
  };
  row.name = "gossip_diloco";
  row.equation = "as diloco, with G = θ − W x";
  row.description = "DiLoCo whose outer steps average with neighbours, by default in random pairs.";
  row.source = "arXiv 2311.08105, G as in 2104.11981";
  row.memory = {.copies = 2,
                .note = "with a compression choco's beside them",
                .carried = "θ and v; with a compression choco's"};
  row.options = {outer_learning_rate(0.7),
                 outer_momentum(0.9),
                 {.name = "compression",
                  .default_value = "none",
                  .meaning = "C of choco, which averages then; a name of `ops::compression_named`",
                  .is_field = true},
                 {.name = "consensus_step_size",
                  .default_value = 1.0,
                  .meaning = "κ of choco, from 0.001 to below 2",
                  .least = 0.001,
                  .below = 2.0}};
  row.default_schedule = [](int size) { return topology::random_matching(size, 1); };
  return row;
}

}  // namespace bluefog::optimizers
