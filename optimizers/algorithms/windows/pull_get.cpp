#include "optimizers/algorithms/windows/pull_get.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {
namespace {

/// The buckets' values, in memory of their own.
std::vector<at::Tensor> copies_of(const std::vector<Bucket>& buckets) {
  std::vector<at::Tensor> copies;
  copies.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    copies.push_back(bucket.flat().clone());
  }
  return copies;
}

}  // namespace

PullGet::PullGet(Context& context, std::vector<Bucket>& buckets, const Schedule& neighbors)
    : Algorithm(buckets),
      published_(copies_of(buckets)),
      windows_(context, views_of(published_), names_of(buckets), neighbors,
               {.fill = ops::WindowFill::OwnValue}) {}

void PullGet::step(const Round& round, const StepBucket& step_bucket) {
  windows_.check(*round.plan);
  windows_.run([&](std::size_t b) { step_bucket(buckets_[b]); },
               [&](std::size_t b) {
                 windows_.set(b, buckets_[b].values());
                 windows_.get(b, *round.plan);
                 windows_.average(b, *round.plan, buckets_[b].values());
               });
  note_changes(buckets_);
}

void PullGet::discard() {
  for (std::size_t b = 0; b < windows_.size(); ++b) {
    windows_.set(b, buckets_[b].values());
    windows_.publish(b);
  }
}

AlgorithmRow pull_get_row() {
  return {.name = "pull_get",
          .equation = "ψ = x − γ d; x ← W ψ̂, ψ̂ what neighbours have published last",
          .description = "Adapt-then-combine without waiting, by reading from neighbours.",
          .source = "BlueFog",
          .overlap = "nobody is waited for",
          .memory = {.copies = 1, .copies_per_source = 1},
          .uses_windows = true,
          .counts_passes = true,
          .make = [](AlgorithmParts parts) {
            return std::make_unique<PullGet>(parts.context, parts.buckets,
                                             mixing_of(parts.options, parts.context.size()));
          }};
}

}  // namespace bluefog::optimizers
