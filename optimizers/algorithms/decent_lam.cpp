#include "optimizers/algorithms/decent_lam.hpp"

#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {

void DecentLam::step(const Round& round, const StepBucket& step_bucket) {
  keep_values(buckets_, starts_);
  averages_.run(round, [&](std::size_t b) { step_bucket(buckets_[b]); });
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [beta = momentum_](auto& x, auto& v, const auto& start) {
          v = NumberOf<decltype(v)>(beta) * v + (start - x);
          x = start - v;
        },
        buckets_[b].flat(), moments_[b], ReadOnly{starts_[b]});
  }
  note_changes(buckets_);
}

}  // namespace bluefog::optimizers
