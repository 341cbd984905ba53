#include "optimizers/algorithms/quasi_global_momentum.hpp"

#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {

void QuasiGlobalMomentum::step(const Round& round, const StepBucket& step_bucket) {
  keep_values(buckets_, starts_);
  averages_.run(round, [&](std::size_t b) {
    step_bucket(buckets_[b]);
    update_elements(
        [beta = momentum_](auto& x, const auto& v) {
          x -= NumberOf<decltype(x)>(beta) * v;
        },
        buckets_[b].flat(), ReadOnly{moments_[b]});
  });
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [beta = momentum_](auto& v, const auto& x, const auto& start) {
          const auto share = NumberOf<decltype(v)>(beta);
          v = share * v + (1 - share) * (start - x);
        },
        moments_[b], ReadOnly{buckets_[b].flat()}, ReadOnly{starts_[b]});
  }
  note_changes(buckets_);
}

}  // namespace bluefog::optimizers
