#include "optimizers/algorithms/outer/coded_outer_steps.hpp"

#include <torch/torch.h>

#include <cmath>
#include <utility>

#include "optimizers/algorithms/codes/coded_values.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {

CodedOuterSteps::CodedOuterSteps(std::vector<Bucket>& buckets, std::unique_ptr<Algorithm> averages,
                                 CodedAverages& same, const OuterMomentum& rule)
    : OuterSteps(buckets, std::move(averages), 1, Sent::Prepared),
      averages_(same),
      rule_(rule),
      moments_(rule.momentum == 0.0 ? std::vector<at::Tensor>() : make_states(buckets)) {
  averages_.agree_on([this] {
    std::uint64_t number = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      number = number_of_values(buckets_[b], start(b), number);
    }
    return number;
  });
}

void CodedOuterSteps::prepare(std::size_t b) {
  codes_ = b == 0 ? averages_.codes() : codes_;
  if (codes_) {
    update_elements(
        [rate = rule_.learning_rate](auto& x, const auto& theta) {
          x = NumberOf<decltype(x)>(rate) * (theta - x);
        },
        buckets_[b].flat(), ReadOnly{start(b)});
  }
}

void CodedOuterSteps::update(std::size_t b) {
  if (!codes_) {
    start(b).copy_(buckets_[b].flat());
  } else if (moments_.empty()) {
    update_elements(
        [](auto& x, auto& theta) {
          theta = theta - x;
          x = theta;
        },
        buckets_[b].flat(), start(b));
  } else {
    update_elements(
        [rule = rule_](auto& x, auto& theta, auto& v) {
          rule.take(theta, v, x);
          x = theta;
        },
        buckets_[b].flat(), start(b), moments_[b]);
  }
}

NamedTensors CodedOuterSteps::own_state() const { return named(moments_, "outer momentum"); }

std::unique_ptr<Algorithm> make_coded_outer_steps(const AlgorithmParts& parts,
                                                  const OuterMomentum& rule) {
  const double decay = parts.number("error_decay");
  auto averages =
      std::make_unique<CodedAverages>(parts.context, parts.buckets, compression_of(parts.options),
                                      decay == 0.0 ? std::nullopt : std::optional<double>(decay));
  CodedAverages& same = *averages;
  return std::make_unique<CodedOuterSteps>(parts.buckets, std::move(averages), same, rule);
}

AlgorithmOption error_decay(double default_value) {
  return {.name = "error_decay",
          .default_value = default_value,
          .meaning = "β_e of what a code has left out, from 0, which drops it, to 1",
          .least = 0.0,
          .below = std::nextafter(1.0, 2.0)};
}

}  // namespace bluefog::optimizers
