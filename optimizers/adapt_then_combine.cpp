#include "optimizers/adapt_then_combine.hpp"

#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

AdaptThenCombine::AdaptThenCombine(Context& context, std::vector<Bucket>& buckets)
    : context_(context), buckets_(buckets), options_(buckets.size()), works_(buckets.size()) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    options_[b].name = buckets[b].name();
  }
}

void AdaptThenCombine::step(const Round& round, const StepBucket& step_bucket) {
  run_round(context_, buckets_.size(), [&](std::size_t& issued) {
    try {
      for (std::size_t b = 0; b < buckets_.size(); ++b) {
        step_bucket(buckets_[b]);
        // All buckets have the same plan: one check serves the round.
        options_[b].check = b == 0 ? round.check : ops::PlanCheck::Trusted;
        ++issued;
        if (b + 1 < buckets_.size()) {
          works_[b] = ops::neighbor_allreduce_nonblocking(context_, buckets_[b].values(),
                                                          round.plan, options_[b]);
        } else {
          ops::neighbor_allreduce(context_, buckets_[b].values(), round.plan, options_[b]);
        }
      }
    } catch (...) {
      // Nothing may write into the parameters once the caller has the error.
      try {
        wait_all(works_);
      } catch (...) {  // the first error is the one that counts
      }
      throw;
    }
    wait_all(works_);
  });
  for (const Bucket& bucket : buckets_) {
    bucket.note_change();
  }
}

void AdaptThenCombine::step_alone(const StepBucket& step_bucket) {
  for (const Bucket& bucket : buckets_) {
    step_bucket(bucket);
  }
}

}  // namespace bluefog::optimizers
