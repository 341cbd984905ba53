#include "optimizers/algorithms/adapt_then_combine.hpp"

#include "optimizers/algorithms/adapt_in_backward.hpp"
#include "optimizers/algorithms/consensus/adaptive_consensus.hpp"
#include "optimizers/algorithms/momentum/moment_averages.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"

namespace bluefog::optimizers {

AdaptThenCombine::AdaptThenCombine(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets), averages_(context, values_of(buckets), names_of(buckets)) {}

void AdaptThenCombine::step(const Round& round, const StepBucket& step_bucket) {
  averages_.run(round, [&](std::size_t b) { step_bucket(buckets_[b]); });
  note_changes(buckets_);
}

AlgorithmRow adapt_then_combine_row() {
  return with_moment_averages(
      with_consensus(
          {.name = "adapt_then_combine",
           .aliases = {"atc"},
           .equation = "x ← W (x − γ d)",
           .description = "The local step, then the average of its result with the neighbours.",
           .source = "Chen and Sayed, Diffusion adaptation strategies, 2012; BlueFog",
           .overlap =
               "the local steps of the next buckets; with `step_in_backward` the rest of the "
               "backward pass",
           .memory = {.note = "1 with `consensus_step_size` or `consensus_decay`; 1 or 2 with "
                              "`average_moments`"},
           .options = {{.name = "step_in_backward",
                        .default_value = false,
                        .meaning = "buckets are stepped and sent in the backward pass",
                        .is_field = true}},
           .counts_passes = true,
           .allows_reevaluation = true,
           .make = [](AlgorithmParts parts) -> std::unique_ptr<Algorithm> {
             if (parts.options.step_in_backward) {
               return std::make_unique<AdaptInBackward>(parts.context, parts.buckets,
                                                        std::move(parts.early),
                                                        parts.options.rethrow_in_backward);
             }
             return std::make_unique<AdaptThenCombine>(parts.context, parts.buckets);
           }},
          AdaptiveConsensus::Order::AdaptThenCombine),
      MomentAverages::Order::AdaptThenCombine);
}

}  // namespace bluefog::optimizers
