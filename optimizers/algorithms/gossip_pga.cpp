#include "optimizers/algorithms/gossip_pga.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"

namespace bluefog::optimizers {

GossipPga::GossipPga(Context& context, std::vector<Bucket>& buckets, std::int64_t period_rounds)
    : Algorithm(buckets),
      period_rounds_(period_rounds),
      neighbor_averages_(context, values_of(buckets), names_of(buckets)),
      global_averages_(context, values_of(buckets), names_of(buckets)) {}

void GossipPga::step(const Round& round, const StepBucket& step_bucket) {
  const auto step_one = [&](std::size_t b) { step_bucket(buckets_[b]); };
  if ((round.index + 1) % period_rounds_ == 0) {
    global_averages_.run(step_one);
  } else {
    neighbor_averages_.run(round, step_one);
  }
  note_changes(buckets_);
}

AlgorithmRow gossip_pga_row() {
  const auto rounds = DistributedOptimizerOptions{}.global_period_rounds;
  return {.name = "gossip_pga",
          .equation = "x ← W (x − γ d), every H rounds x ← J (x − γ d)",
          .description = "Adapt-then-combine with an average over all ranks now and then.",
          .source = "arXiv 2105.09080",
          .overlap = "the local steps of the next buckets",
          .options = {{.name = "global_period_rounds",
                       .default_value = rounds,
                       .meaning = "H, at least 1",
                       .least = 1.0,
                       .is_field = true}},
          .allows_reevaluation = true,
          .make = [](AlgorithmParts parts) {
            return std::make_unique<GossipPga>(parts.context, parts.buckets,
                                               parts.options.global_period_rounds);
          }};
}

}  // namespace bluefog::optimizers
