#include "optimizers/push_sum.hpp"

#include <torch/torch.h>

#include "optimizers/flat_arithmetic.hpp"
#include "optimizers/flat_state.hpp"

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

// x = w z, less the z that `add_step` adds with the step: the first of two passes, so that all of z
// is read before any of it is stepped.
void PushSum::leave_step_for_later() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const double share = weight(b) - 1.0;
    update_elements(
        [share](const auto& z, auto& x) { x = static_cast<std::decay_t<decltype(x)>>(share) * z; },
        ConstBufferView(buckets_[b].values()), sum_views_[b]);
  }
}

void PushSum::add_step(std::size_t b) {
  update_elements([](const auto& stepped, auto& x) { x += stepped; },
                  ConstBufferView(buckets_[b].values()), sum_views_[b]);
}

void PushSum::show_quotient() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const double w = weight(b);
    update_elements(
        [w](auto& z, const auto& x) { z = x / static_cast<std::decay_t<decltype(x)>>(w); },
        buckets_[b].values(), ConstBufferView(sum_views_[b]));
  }
  note_changes(buckets_);
}

void PushSum::step(const Round& round, const StepBucket& step_bucket) {
  leave_step_for_later();
  averages_.run(round, [&](std::size_t b) {
    step_bucket(buckets_[b]);
    add_step(b);
  });
  show_quotient();
}

void PushSum::step_alone(const StepBucket& step_bucket) {
  leave_step_for_later();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    step_bucket(buckets_[b]);
    add_step(b);
  }
  show_quotient();
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
