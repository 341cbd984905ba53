#include "optimizers/algorithms/consensus/consensus_rule.hpp"

#include <fmt/format.h>

#include "optimizers/checks/momentum_growth.hpp"

namespace bluefog::optimizers {

ConsensusRule ConsensusRule::of(const DistributedOptimizerOptions& options) {
  return {.step_size = number_of(options, "consensus_step_size"),
          .decay = number_of(options, "consensus_decay"),
          .most_rounds = static_cast<std::int64_t>(number_of(options, "consensus_rounds")),
          .bound = number_of(options, "consensus_bound")};
}

std::vector<AlgorithmOption> consensus_options() {
  return {
      {.name = "consensus_step_size",
       .default_value = 1.0,
       .meaning = "κ of x ← (1 − κ) x + κ W x, from 0.001 to below 2",
       .least = 0.001,
       .below = 2.0},
      {.name = "consensus_decay",
       .default_value = 0.0,
       .meaning = "p: κ falls as the p-th power of the learning rate",
       .least = 0.0},
      {.name = "consensus_rounds",
       .default_value = std::int64_t{1},
       .meaning = "averages in a step, at most; up to 1024",
       .least = 1.0,
       .below = 1025.0},
      {.name = "consensus_bound",
       .default_value = 0.0,
       .meaning = "another average is made while ‖x − J x‖ is above so many times the length of "
                  "the local step; 0: always",
       .least = 0.0}};
}

std::string why_unfit_consensus(const DistributedOptimizerOptions& options,
                                const Schedule& schedule) {
  const ConsensusRule rule = ConsensusRule::of(options);
  if (options.step_in_backward && !rule.is_plain()) {
    return fmt::format(
        "step_in_backward: expected consensus_step_size 1, consensus_decay 0 and consensus_rounds "
        "1, because averages leave before all parameters are stepped, found {}, {} and {}",
        rule.step_size, rule.decay, rule.most_rounds);
  }
  if (rule.bound > 0.0 && rule.most_rounds == 1) {
    return fmt::format(
        "consensus_bound {}: expected consensus_rounds above 1, of which it says how many are made, "
        "found 1",
        rule.bound);
  }
  if (rule.step_size <= 1.0 || options.row_sums != RowSums::One) {
    return {};
  }
  const MomentumRecursion recursion{.momentum = 0.0, .by_momentum = rule.step_size};
  const std::string found = why_differences_stay(recursion, schedule);
  return found.empty()
             ? found
             : fmt::format(
                   "consensus_step_size {}: {} expects differences between ranks to die out over "
                   "the schedule where there are no gradients, found that they {}; use a smaller one",
                   rule.step_size, options.algorithm.text(), found);
}

std::string why_unfit_plans(const DistributedOptimizerOptions& options) {
  const std::int64_t rounds = ConsensusRule::of(options).most_rounds;
  return rounds == 1
             ? std::string()
             : fmt::format(
                   "consensus_rounds {}: {} expects a schedule, whose next rounds it makes, "
                   "found a plan for one round",
                   rounds, options.algorithm.text());
}

}  // namespace bluefog::optimizers
