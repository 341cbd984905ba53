#include "optimizers/algorithms/momentum/dmsgd.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {

void DmSgd::step_one(std::size_t b, const StepBucket& step_bucket) {
  step_bucket(buckets_[b]);
  update_elements(
      [beta = momentum_](auto& x, auto& v, const auto& start) {
        v = NumberOf<decltype(v)>(beta) * v + (start - x);
        x = start - v;
      },
      buckets_[b].flat(), moments_[b], ReadOnly{starts_[b]});
}

void DmSgd::step(const Round& round, const StepBucket& step_bucket) {
  keep_values(buckets_, starts_);
  averages_.run(round, [&](std::size_t b) { step_one(b, step_bucket); });
  note_changes(buckets_);
}

void DmSgd::step_alone(const StepBucket& step_bucket) {
  keep_values(buckets_, starts_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    step_one(b, step_bucket);
  }
  note_changes(buckets_);
}

AlgorithmRow dmsgd_row() {
  AlgorithmRow row = averaged_momentum_row();
  row.name = "dmsgd";
  row.equation = "v ← β v + γ d; x ← W (x − v)";
  row.description =
      "Adapt-then-combine with momentum over each rank's own steps, and its bias; SGD's momentum at "
      "a constant rate alone.";
  row.source = "baseline of arXiv 2104.11981";
  row.mixing = {};
  row.needs_every_step = false;
  row.make = [](AlgorithmParts parts) {
    return std::make_unique<DmSgd>(parts.context, parts.buckets, parts.options.momentum);
  };
  return row;
}

}  // namespace bluefog::optimizers
