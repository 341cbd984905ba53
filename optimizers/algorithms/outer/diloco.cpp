// DiLoCo: over all ranks, and over the ranks of a round.
#include <string>
#include <utility>

#include "optimizers/algorithms/codes/consensus_step.hpp"
#include "optimizers/algorithms/outer/coded_outer_steps.hpp"
#include "optimizers/algorithms/outer/late_outer_steps.hpp"
#include "optimizers/algorithms/outer/outer_steps.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "topology/one_to_one.hpp"

namespace bluefog::optimizers {
namespace {

/// Empty unless `option` is given without a compression.
std::string why_without_code(const DistributedOptimizerOptions& options, const char* option) {
  return options.compression || !options.numbers.contains(option)
             ? std::string()
             : std::string(option) + ": expected a compression, whose it is, found none";
}

/// `row` with a check of `option` before its own.
void check_goes_with_code(AlgorithmRow& row, const char* option) {
  row.why_unfit_schedule = [option, of_rule = row.why_unfit_schedule](
                               const DistributedOptimizerOptions& options,
                               const Schedule& schedule) {
    std::string problem = why_without_code(options, option);
    return problem.empty() ? of_rule(options, schedule) : problem;
  };
}

}  // namespace

AlgorithmRow diloco_row() {
  AlgorithmRow row = outer_row_of_all_ranks(OuterMomentum::nesterov);
  check_goes_with_code(row, "error_decay");
  row.make = [plain = std::move(row.make)](AlgorithmParts parts) {
    return parts.options.compression
               ? make_coded_outer_steps(parts, OuterMomentum::nesterov(parts.options))
               : plain(std::move(parts));
  };
  row.name = "diloco";
  row.equation = "x after H local steps from θ: G = θ − J x; v ← β v + G; x, θ ← θ − α (G + β v)";
  row.description =
      "Outer steps with Nesterov's momentum over all ranks, every `num_steps_per_communication` "
      "steps.";
  row.source = "arXiv 2311.08105";
  row.memory = {.copies = 2,
                .note = "4 with `outer_delay`; 4 with a compression, and the codes of all ranks",
                .carried = "θ and v; with a compression e"};
  row.options = {outer_learning_rate(0.7),
                 outer_momentum(0.9),
                 {.name = "compression",
                  .default_value = "none",
                  .meaning = "C of differences, with error feedback; a name of "
                             "`ops::compression_named`",
                  .is_field = true},
                 error_decay(1.0)};
  row.mixing = {.stochastic = Stochastic::Any, .note = "none: averages over all ranks"};
  return with_outer_delay(std::move(row), OuterMomentum::nesterov, Averaging::Everybody);
}

AlgorithmRow gossip_diloco_row() {
  AlgorithmRow row = outer_row_of_neighbors(OuterMomentum::nesterov);
  check_goes_with_code(row, "consensus_step_size");
  row.name = "gossip_diloco";
  row.equation = "as diloco, with G = θ − W x";
  row.description = "DiLoCo whose outer steps average with neighbours, by default in random pairs.";
  row.source = "arXiv 2311.08105, G as in 2104.11981";
  row.memory = {.copies = 2,
                .note = "4 with `outer_delay`; with a compression choco's beside them",
                .carried = "θ and v; with a compression choco's"};
  row.options = {outer_learning_rate(0.7),
                 outer_momentum(0.9),
                 {.name = "compression",
                  .default_value = "none",
                  .meaning = "C of choco, which averages then; a name of `ops::compression_named`",
                  .is_field = true},
                 consensus_step_option()};
  row.default_schedule = [](int size) { return topology::random_matching(size, 1); };
  return with_outer_delay(std::move(row), OuterMomentum::nesterov, Averaging::Neighbors);
}

}  // namespace bluefog::optimizers
