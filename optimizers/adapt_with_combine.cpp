#include "optimizers/adapt_with_combine.hpp"

#include <utility>

#include "optimizers/bucket_averages.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

AdaptWithCombine::AdaptWithCombine(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets),
      context_(context),
      averages_(context, values_of(buckets), names_of(buckets)),
      options_(buckets.size()),
      works_(buckets.size()) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    options_[b].name = buckets[b].name();
    options_[b].completion = ops::Completion::OnWait;
  }
}

void AdaptWithCombine::step(const Round& round, const StepBucket& step_bucket) {
  if (round.averaging != Averaging::Neighbors) {
    step_after_average(round, step_bucket);
    return;
  }
  run_round(context_, buckets_.size(), [&](std::size_t& issued) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      combine(b);
      step_bucket(buckets_[b]);
      options_[b].check = b == 0 ? round.check : ops::PlanCheck::Trusted;
      ++issued;
      works_[b] = ops::neighbor_allreduce_nonblocking(context_, buckets_[b].values(), round.plan,
                                                      options_[b]);
    }
  });
}

void AdaptWithCombine::step_after_average(const Round& round, const StepBucket& step_bucket) {
  const std::size_t calls_due = round.averaging == Averaging::Nobody ? 0 : buckets_.size();
  run_round(context_, calls_due, [&](std::size_t& issued) {
    wait_all(works_);
    issued = calls_due;
  });
  averages_.run(round, [](std::size_t /*bucket*/) {});
  note_changes(buckets_);
  for (const Bucket& bucket : buckets_) {
    step_bucket(bucket);
  }
}

void AdaptWithCombine::step_alone(const StepBucket& step_bucket) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    combine(b);
    step_bucket(buckets_[b]);
  }
}

void AdaptWithCombine::combine(std::size_t bucket) {
  std::exchange(works_[bucket], Work()).wait();
  buckets_[bucket].note_change();
}

void AdaptWithCombine::drain() {
  wait_all(works_);
  note_changes(buckets_);
}

}  // namespace bluefog::optimizers
