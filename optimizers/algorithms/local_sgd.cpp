#include "optimizers/algorithms/local_sgd.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"

namespace bluefog::optimizers {

LocalSgd::LocalSgd(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets), averages_(context, values_of(buckets), names_of(buckets)) {}

void LocalSgd::step(const Round& /*round*/, const StepBucket& step_bucket) {
  averages_.run([&](std::size_t b) { step_bucket(buckets_[b]); });
  note_changes(buckets_);
}

AlgorithmRow local_sgd_row() {
  return {.name = "local_sgd",
          .equation = "x ← x − γ d, in communicating steps x ← J (x − γ d)",
          .description =
              "Local steps, and an average over all ranks every "
              "`num_steps_per_communication` steps.",
          .source = "arXiv 1805.09767",
          .overlap = "the local steps of the next buckets",
          .mixing = {.stochastic = Stochastic::Any, .note = "none: averages over all ranks"},
          .allows_reevaluation = true,
          .make = [](AlgorithmParts parts) {
            return std::make_unique<LocalSgd>(parts.context, parts.buckets);
          }};
}

}  // namespace bluefog::optimizers
