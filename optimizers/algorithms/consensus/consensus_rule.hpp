#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optimizers/algorithm_row.hpp"

namespace bluefog::optimizers {

/// How far, and how often, a step goes towards what its neighbours have: options of adapt-then-combine
/// and adapt-with-combine.
struct ConsensusRule {
  double step_size = 1.0;  ///< κ of x ← (1 − κ) x + κ W x
  double decay = 0.0;  ///< p: κ falls as (γ / γ₀)^p, with γ₀ the highest learning rate so far
  std::int64_t most_rounds = 1;  ///< averages in a step, at most
  /// Another one is made while ‖x − J x‖ is above so many times the length of the local step; 0:
  /// always.
  double bound = 0.0;

  /// The rule that the options ask for.
  [[nodiscard]] static ConsensusRule of(const DistributedOptimizerOptions& options);

  /// Whether a step makes one average, and takes all of it.
  [[nodiscard]] bool is_plain() const noexcept {
    return step_size == 1.0 && decay == 0.0 && most_rounds == 1;
  }
};

/// The options of rows that a rule is read from.
[[nodiscard]] std::vector<AlgorithmOption> consensus_options();

/// Why the options' rule cannot go with a schedule; empty if it can.
[[nodiscard]] std::string why_unfit_consensus(const DistributedOptimizerOptions& options,
                                              const Schedule& schedule);
/// Why it cannot go with plans for one round; empty if it can.
[[nodiscard]] std::string why_unfit_plans(const DistributedOptimizerOptions& options);

}  // namespace bluefog::optimizers
