#include "optimizers/algorithms/no_communication.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"

namespace bluefog::optimizers {

AlgorithmRow none_row() {
  return {.name = "none",
          .aliases = {"empty"},
          .equation = "x ← x − γ d",
          .description = "Every rank for itself: the cost of communication is measured against it.",
          .source = "BlueFog's communication type `empty`",
          .mixing = {.stochastic = Stochastic::Any, .note = "none"},
          .counts_passes = true,  // BlueFog's optimizers over windows step by it in Python
          .allows_reevaluation = true,
          .make = [](AlgorithmParts parts) {
            return std::make_unique<NoCommunication>(parts.buckets);
          }};
}

}  // namespace bluefog::optimizers
