#include "optimizers/decent_lam.hpp"

#include "optimizers/flat_arithmetic.hpp"
#include "optimizers/flat_state.hpp"

namespace bluefog::optimizers {

void DecentLam::step(const Round& round, const StepBucket& step_bucket) {
  keep_values(buckets_, start_views_);
  averages_.run(round, [&](std::size_t b) { step_bucket(buckets_[b]); });
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [beta = momentum_](auto& x, auto& v, const auto& start) {
          v = static_cast<std::decay_t<decltype(v)>>(beta) * v + (start - x);
          x = start - v;
        },
        buckets_[b].values(), moment_views_[b], ConstBufferView(start_views_[b]));
  }
  note_changes(buckets_);
}

}  // namespace bluefog::optimizers
