#include "optimizers/algorithms/outer/coded_outer_steps.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"

namespace bluefog::optimizers {

AlgorithmRow sparse_loco_row() {
  AlgorithmRow row = outer_row();
  row.name = "sparse_loco";
  row.equation =
      "x after H local steps from θ: e ← β e + α (θ − x); q = C(e); e ← e − q; x, θ ← θ − J q";
  row.description =
      "Outer steps that send the largest of what local steps have changed, and the rest later.";
  row.source = "SparseLoCo, arXiv 2508.15706";
  row.memory = {.copies = 3, .note = "and the codes of all ranks", .carried = "θ and e"};
  row.options = {outer_learning_rate(1.0),
                 error_decay(0.999),
                 {.name = "compression",
                  .default_value = "topk8:32",
                  .meaning = "C, a name of `ops::compression_named`",
                  .is_field = true}};
  row.mixing = {.stochastic = Stochastic::Any, .note = "none: averages over all ranks"};
  row.full_precision_because = "small differences add up in what it has not sent";
  row.make = [](const AlgorithmParts& parts) {
    return make_coded_outer_steps(
        parts, {.learning_rate = parts.number("outer_learning_rate"), .momentum = 0.0});
  };
  return row;
}

}  // namespace bluefog::optimizers
