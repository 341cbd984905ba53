#include "optimizers/algorithms/extra.hpp"

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::optimizers {

Extra::Extra(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets),
      context_(context),
      sent_(make_states(buckets)),
      received_(make_states(buckets)),
      sums_(make_states(buckets)),
      received_views_(views_of(received_)),
      averages_(context, views_of(sent_), names_of(buckets)),
      works_(buckets.size()) {}

void Extra::step(const Round& round, const StepBucket& step_bucket) {
  run_overlapped_round(context_, buckets_.size(), works_, [&](std::size_t& issued) {
    keep_values(buckets_, sent_);
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
          sum += NumberOf<decltype(sum)>(0.5) * (sent - received);
        },
        buckets_[b].flat(), ReadOnly{sent_[b]}, ReadOnly{received_[b]}, sums_[b]);
  }
  note_changes(buckets_);
}

NamedTensors Extra::state() const { return named(sums_, "sum"); }

void Extra::restart() { zero(sums_); }

AlgorithmRow extra_row() {
  return {
      .name = "extra",
      .equation = "x⁺ = (I + W) x − ½ (I + W) x₋ − γ (d − d₋)",
      .description = "Decentralized gradient descent without its bias.",
      .source = "arXiv 1404.6264",
      .overlap = "the local steps",
      .memory = {.copies = 3,
                 .carried = "the sum of ½ (x − W x)",
                 .conserved = "sums to 0 over the ranks"},
      .mixing = {.stochastic = Stochastic::RowsAndColumns,
                 .is_symmetric = true,
                 .is_fixed = true,
                 .eigenvalues_above = EigenvalueBound{.value = -1.0, .text = "-1"}},
      .needs_every_step = true,
      .bound_to_values = "its corrections",
      .default_schedule =
          [](int size) { return topology::static_schedule(topology::symmetric_exponential(size)); },
      .make =
          [](AlgorithmParts parts) {
            return std::make_unique<Extra>(parts.context, parts.buckets);
          }};
}

}  // namespace bluefog::optimizers
