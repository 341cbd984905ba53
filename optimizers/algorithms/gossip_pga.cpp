#include "optimizers/algorithms/gossip_pga.hpp"

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

}  // namespace bluefog::optimizers
