#include "optimizers/push_sum.hpp"

#include <torch/torch.h>

#include "optimizers/flat_state.hpp"
#include "optimizers/weighted_sums.hpp"

namespace bluefog::optimizers {

PushSum::PushSum(Context& context, std::vector<Bucket>& buckets)
    : Algorithm(buckets),
      sums_(make_states(buckets, 1)),
      sum_views_(views_of(sums_)),
      averages_(context, sum_views_, names_of(buckets)) {
  restart();
}

double PushSum::weight(std::size_t b) const {
  const BufferView& view = sum_views_[b];
  const std::int64_t last = view.count - 1;
  return view.dtype == Dtype::Float64 ? static_cast<const double*>(view.data)[last]
                                      : static_cast<const float*>(view.data)[last];
}

void PushSum::leave_step_for_later() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    hold_sum_without_step(buckets_[b].values(), weight(b), sum_views_[b]);
  }
}

void PushSum::show_quotients() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    show_quotient(sum_views_[b], weight(b), buckets_[b].values());
  }
  note_changes(buckets_);
}

void PushSum::step(const Round& round, const StepBucket& step_bucket) {
  leave_step_for_later();
  averages_.run(round, [&](std::size_t b) {
    step_bucket(buckets_[b]);
    add_stepped(buckets_[b].values(), sum_views_[b]);
  });
  show_quotients();
}

void PushSum::step_alone(const StepBucket& step_bucket) {
  leave_step_for_later();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    step_bucket(buckets_[b]);
    add_stepped(buckets_[b].values(), sum_views_[b]);
  }
  show_quotients();
}

NamedTensors PushSum::state() const {
  std::vector<at::Tensor> weights;
  for (const at::Tensor& sum : sums_) {
    weights.push_back(sum.slice(0, sum.numel() - 1));
  }
  return named(weights, "weight");
}

void PushSum::restart() {
  for (const auto& [name, weight] : state()) {
    weight.fill_(1.0);
  }
}

}  // namespace bluefog::optimizers
