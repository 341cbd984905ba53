#include "optimizers/algorithms/gradient_tracking.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <string>

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/buckets/gradient_placement.hpp"

namespace bluefog::optimizers {
namespace {

std::vector<BufferView> add_gradients(std::vector<Bucket>& buckets) {
  std::vector<BufferView> views;
  for (Bucket& bucket : buckets) {
    bucket.add_gradients();
    views.push_back(bucket.gradients());
  }
  return views;
}

std::vector<at::Tensor> states_like(const std::vector<Bucket>& buckets) {
  std::vector<at::Tensor> states;
  for (const Bucket& bucket : buckets) {
    states.push_back(bucket.make_state(bucket.gradients().count - bucket.values().count));
  }
  return states;
}

std::vector<std::string> names_of_gradients(const std::vector<Bucket>& buckets) {
  std::vector<std::string> names;
  for (const Bucket& bucket : buckets) {
    names.push_back("gradients of " + bucket.name());
  }
  return names;
}

}  // namespace

GradientTracking::GradientTracking(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets),
      context_(context),
      where_(fmt::format("rank {}, gradient tracking", context.rank())),
      gradients_(add_gradients(buckets)),
      averages_(context, values_of(buckets), names_of(buckets)),
      gradient_averages_(context, gradients_, names_of_gradients(buckets)),
      works_(2 * buckets.size()) {
  carried_ = states_like(buckets);
}

// y = (W y − g of the step before) + g, where the gradients are.
void GradientTracking::track() {
  for (Bucket& bucket : buckets_) {
    for (std::size_t i = 0; i < bucket.segments().size(); ++i) {
      at::Tensor& gradient = bucket.segments()[i].parameter.mutable_grad();
      if (gradient.defined()) {
        place_gradient(bucket, i, where_);
      } else {
        bucket.gradient(i).zero_();
        gradient = bucket.gradient(i);
      }
    }
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [](auto& gradient, auto& carried) {
          const auto own = gradient;
          gradient += carried;
          carried = -own;
        },
        buckets_[b].flat_gradients(), carried_[b]);
  }
}

void GradientTracking::give_back() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [](auto& gradient, auto& carried) {
          const auto own = -carried;
          carried += gradient;
          gradient = own;
        },
        buckets_[b].flat_gradients(), carried_[b]);
  }
}

void GradientTracking::step(const Round& round, const StepBucket& step_bucket) {
  run_overlapped_round(context_, calls_due(), works_, [&](std::size_t& issued) {
    track();
    Round same_plan = round;
    same_plan.check = ops::PlanCheck::Trusted;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      step_bucket(buckets_[b]);
      ++issued;
      works_[2 * b] = averages_.start(round, b);
      ++issued;
      works_[2 * b + 1] = gradient_averages_.start(same_plan, b);
    }
  });
  give_back();
  note_changes(buckets_);
}

bool GradientTracking::zero_gradients(bool /*set_to_none*/) {
  for (Bucket& bucket : buckets_) {
    bucket.zero_gradients();
    for (std::size_t i = 0; i < bucket.segments().size(); ++i) {
      bucket.segments()[i].parameter.mutable_grad() = bucket.gradient(i);
    }
  }
  return true;
}

NamedTensors GradientTracking::state() const { return named(carried_, "tracking"); }

void GradientTracking::restart() { zero(carried_); }

AlgorithmRow gradient_tracking_row() {
  return {
      .name = "gradient_tracking",
      .equation = "y⁺ = W y + g⁺ − g; x⁺ = W (x − γ d(y))",
      .description = "The local step with an estimate y of the mean gradient; sends twice as much.",
      .source = "DIGing, arXiv 1607.03218, 1805.11454",
      .overlap = "the local steps of the next buckets",
      .memory = {.copies = 1,
                 .note = "gradients move into flat buckets",
                 .carried = "W y − g",
                 .conserved = "sums to 0 over the ranks"},
      .mixing = {.stochastic = Stochastic::RowsAndColumns, .kept_mean = "the mean gradient"},
      .needs_every_step = true,
      .make = [](AlgorithmParts parts) {
        return std::make_unique<GradientTracking>(parts.context, parts.buckets);
      }};
}

}  // namespace bluefog::optimizers
