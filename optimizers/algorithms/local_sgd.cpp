#include "optimizers/algorithms/local_sgd.hpp"

namespace bluefog::optimizers {

LocalSgd::LocalSgd(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets), averages_(context, values_of(buckets), names_of(buckets)) {}

void LocalSgd::step(const Round& /*round*/, const StepBucket& step_bucket) {
  averages_.run([&](std::size_t b) { step_bucket(buckets_[b]); });
  note_changes(buckets_);
}

}  // namespace bluefog::optimizers
