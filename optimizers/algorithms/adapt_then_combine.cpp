#include "optimizers/algorithms/adapt_then_combine.hpp"

namespace bluefog::optimizers {

AdaptThenCombine::AdaptThenCombine(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets), averages_(context, values_of(buckets), names_of(buckets)) {}

void AdaptThenCombine::step(const Round& round, const StepBucket& step_bucket) {
  averages_.run(round, [&](std::size_t b) { step_bucket(buckets_[b]); });
  note_changes(buckets_);
}

}  // namespace bluefog::optimizers
