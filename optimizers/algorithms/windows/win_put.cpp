#include "optimizers/algorithms/windows/win_put.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"

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

AlgorithmRow win_put_row() {
  return {.name = "win_put",
          .equation = "ψ = x − γ d; x ← W ψ̂, ψ̂ what neighbours have put last",
          .description = "Adapt-then-combine without waiting, by writing to neighbours.",
          .source = "BlueFog",
          .overlap = "nobody is waited for",
          .memory = {.copies_per_source = 1, .note = "in shared memory"},
          .uses_windows = true,
          .make = [](AlgorithmParts parts) {
            return std::make_unique<WinPut>(parts.context, parts.buckets,
                                            mixing_of(parts.options, parts.context.size()));
          }};
}

}  // namespace bluefog::optimizers
