#include "optimizers/algorithms/push_sum.hpp"

#include <torch/torch.h>

#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/buckets/weighted_sums.hpp"

namespace bluefog::optimizers {
namespace {

std::vector<at::Tensor> last_elements_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> elements;
  for (const at::Tensor& tensor : tensors) {
    elements.push_back(tensor.narrow(0, tensor.numel() - 1, 1));
  }
  return elements;
}

}  // namespace

PushSum::PushSum(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets),
      sums_(make_states(buckets, 1)),
      weights_(last_elements_of(sums_)),
      averages_(context, views_of(sums_), names_of(buckets)) {
  restart();
}

void PushSum::leave_step_for_later() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    hold_sum_without_step(buckets_[b].flat(), weights_[b], sums_[b]);
  }
}

void PushSum::show_quotients() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    show_quotient(sums_[b], weights_[b], buckets_[b].flat());
  }
  note_changes(buckets_);
}

void PushSum::step(const Round& round, const StepBucket& step_bucket) {
  leave_step_for_later();
  averages_.run(round, [&](std::size_t b) {
    step_bucket(buckets_[b]);
    add_stepped(buckets_[b].flat(), sums_[b]);
  });
  show_quotients();
}

void PushSum::step_alone(const StepBucket& step_bucket) {
  leave_step_for_later();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    step_bucket(buckets_[b]);
    add_stepped(buckets_[b].flat(), sums_[b]);
  }
  show_quotients();
}

NamedTensors PushSum::state() const { return named(weights_, "weight"); }

void PushSum::restart() {
  for (const at::Tensor& weight : weights_) {
    weight.fill_(1.0);
  }
}

AlgorithmRow push_sum_row() {
  return {
      .name = "push_sum",
      .equation = "x ← P (x − γ d(z)); w ← P w; z = x / w",
      .description = "Stochastic gradient push, over directed graphs whose columns sum to 1.",
      .source = "arXiv 1811.10792",
      .overlap = "the local steps of the next buckets",
      .memory = {.copies = 1, .carried = "w", .conserved = "sums to their number over the ranks"},
      .mixing = {.stochastic = Stochastic::Columns},
      .counts_passes = true,
      .full_precision_because = "each step multiplies by a weight and divides by it again",
      .make = [](AlgorithmParts parts) {
        return std::make_unique<PushSum>(parts.context, parts.buckets);
      }};
}

}  // namespace bluefog::optimizers
