#include "optimizers/extra.hpp"

#include "optimizers/flat_arithmetic.hpp"
#include "optimizers/flat_state.hpp"

namespace bluefog::optimizers {

Extra::Extra(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets),
      context_(context),
      sent_(make_states(buckets)),
      received_(make_states(buckets)),
      sums_(make_states(buckets)),
      sent_views_(views_of(sent_)),
      received_views_(views_of(received_)),
      sum_views_(views_of(sums_)),
      averages_(context, sent_views_, names_of(buckets)),
      works_(buckets.size()) {}

void Extra::step(const Round& round, const StepBucket& step_bucket) {
  run_overlapped_round(context_, buckets_.size(), works_, [&](std::size_t& issued) {
    keep_values(buckets_, sent_views_);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      ++issued;
      works_[b] = averages_.start(round, b, received_views_[b]);
    }
    for (const Bucket& bucket : buckets_) {
      step_bucket(bucket);
    }
  });
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [](auto& x, const auto& sent, const auto& received, auto& sum) {
          const auto moved = x - sent;  // − γ d
          x = received + moved - sum;
          sum += (sent - received) / 2;
        },
        buckets_[b].values(), ConstBufferView(sent_views_[b]), ConstBufferView(received_views_[b]),
        sum_views_[b]);
  }
  note_changes(buckets_);
}

NamedTensors Extra::state() const { return named(sums_, "sum"); }

void Extra::restart() { zero(sums_); }

}  // namespace bluefog::optimizers
