#include "optimizers/algorithms/win_put.hpp"

#include "optimizers/buckets/bucket_averages.hpp"

namespace bluefog::optimizers {

WinPut::WinPut(Context& context, std::vector<Bucket>& buckets, const Schedule& neighbors)
    : Algorithm(buckets),
      windows_(context, values_of(buckets), names_of(buckets), neighbors,
               {.fill = ops::WindowFill::OwnValue}) {}

void WinPut::step(const Round& round, const StepBucket& step_bucket) {
  windows_.check(*round.plan);
  windows_.run([&](std::size_t b) { step_bucket(buckets_[b]); },
               [&](std::size_t b) {
                 windows_.put(b, *round.plan);
                 windows_.average(b, *round.plan, buckets_[b].values());
               });
  note_changes(buckets_);
}

void WinPut::discard() {
  for (std::size_t b = 0; b < windows_.size(); ++b) {
    windows_.fill(b, ops::WindowFill::OwnValue);
  }
}

}  // namespace bluefog::optimizers
