#include "optimizers/algorithms/windows/async_push_sum.hpp"

#include <torch/torch.h>

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/buckets/weighted_sums.hpp"
#include "topology/mixing/sender_weights.hpp"

namespace bluefog::optimizers {
namespace {

/// A rank keeps at least this much.
constexpr double kLeastWeight = 1.0 / 8;

std::vector<at::Tensor> ones(std::size_t count) {
  std::vector<at::Tensor> weights;
  for (std::size_t i = 0; i < count; ++i) {
    weights.push_back(at::ones({1}, at::kDouble));
  }
  return weights;
}

}  // namespace

AsyncPushSum::AsyncPushSum(Context& context, std::vector<Bucket>& buckets,
                           const Schedule& neighbors)
    : Algorithm(buckets),
      sums_(make_states(buckets)),
      weights_(ones(buckets.size())),
      windows_(context, views_of(sums_), names_of(buckets), neighbors,
               {.fill = ops::WindowFill::Zeros, .associated_weight = ops::AssociatedWeight::On}) {}

double& AsyncPushSum::weight(std::size_t b) const { return *weights_[b].data_ptr<double>(); }

at::Tensor AsyncPushSum::weight_tensor(std::size_t b) const {
  return sums_[b].is_cpu() ? weights_[b]
                           : at::full({1}, weight(b), sums_[b].options().dtype(at::kDouble));
}

void AsyncPushSum::leave_step_for_later() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    hold_sum_without_step(buckets_[b].flat(), weight_tensor(b), sums_[b]);
  }
}

void AsyncPushSum::show_quotients() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    show_quotient(sums_[b], weight_tensor(b), buckets_[b].flat());
  }
  note_changes(buckets_);
}

void AsyncPushSum::step_sum(std::size_t b, const StepBucket& step_bucket) {
  step_bucket(buckets_[b]);
  add_stepped(buckets_[b].flat(), sums_[b]);
}

// The kept share follows from what was taken: nothing is lost if a rank has finished meanwhile.
void AsyncPushSum::exchange(std::size_t b, const NeighborPlan& plan) {
  windows_[b].set_associated_weight(weight(b));
  const bool may_give = plan.self_weight * weight(b) >= kLeastWeight;
  const double given = may_give ? windows_.accumulate(b, plan) : 0.0;
  windows_.collect(b, 1.0 - given);
  weight(b) = windows_[b].associated_weight();
}

void AsyncPushSum::step(const Round& round, const StepBucket& step_bucket) {
  windows_.check(*round.plan);
  leave_step_for_later();
  windows_.run([&](std::size_t b) { step_sum(b, step_bucket); },
               [&](std::size_t b) { exchange(b, *round.plan); });
  show_quotients();
}

void AsyncPushSum::step_alone(const StepBucket& step_bucket) {
  leave_step_for_later();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    step_sum(b, step_bucket);
  }
  show_quotients();
}

void AsyncPushSum::drain() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (windows_.has_news(b)) {  // else the quotient would round once more
      hold_sum(buckets_[b].flat(), weight_tensor(b), 0.0, sums_[b]);
      windows_[b].set_associated_weight(weight(b));
      windows_.collect(b, 1.0);
      weight(b) = windows_[b].associated_weight();
      show_quotient(sums_[b], weight_tensor(b), buckets_[b].flat());
      buckets_[b].note_change();
    }
  }
}

void AsyncPushSum::discard() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    windows_.fill(b, ops::WindowFill::Zeros);
  }
}

NamedTensors AsyncPushSum::state() const { return named(weights_, "weight"); }

void AsyncPushSum::restart() {
  for (const at::Tensor& weight : weights_) {
    weight.fill_(1.0);
  }
}

AlgorithmRow async_push_sum_row() {
  return {.name = "async_push_sum",
          .equation = "x ← x − γ d(z); shares of x and w to neighbours; z = x / w",
          .description = "Push-sum in which no rank waits.",
          .source = "arXiv 1811.10792, 1803.08950; BlueFog",
          .overlap = "nobody is waited for",
          .memory = {.copies = 1,
                     .copies_per_source = 1,
                     .carried = "w",
                     .conserved = "sums to their number over the ranks"},
          .mixing = {.stochastic = Stochastic::Columns},
          .uses_windows = true,
          .counts_passes = true,
          .bound_to_values = "its weight, and shares under way,",
          .full_precision_because = "each step multiplies by a weight and divides by it again",
          .transform =
              [](Schedule schedule) { return topology::weighed_by_senders(std::move(schedule)); },
          .make =
              [](AlgorithmParts parts) {
                return std::make_unique<AsyncPushSum>(
                    parts.context, parts.buckets, mixing_of(parts.options, parts.context.size()));
              }};
}

}  // namespace bluefog::optimizers
