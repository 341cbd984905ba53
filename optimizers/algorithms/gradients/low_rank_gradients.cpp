#include "optimizers/algorithms/gradients/low_rank_gradients.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "ops/collectives.hpp"
#include "optimizers/algorithms/codes/coded_values.hpp"
#include "optimizers/parameter.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {
namespace {

/// In one pass, without a tensor of truths. NaN is both the least and the largest of its like.
bool is_finite(const at::Tensor& values) {
  if (values.numel() == 0) {
    return true;
  }
  const auto [least, largest] = at::aminmax(values);
  return std::isfinite(least.item<double>()) && std::isfinite(largest.item<double>());
}

}  // namespace

at::Tensor LowRankGradients::Part::p_in(const at::Tensor& message) const {
  return message.narrow(0, first, shape.rows * shape.rank).view({shape.rows, shape.rank});
}

at::Tensor LowRankGradients::Part::q_in(const at::Tensor& message) const {
  return message.narrow(0, later, shape.columns * shape.rank).view({shape.columns, shape.rank});
}

LowRankGradients::LowRankGradients(Context& context, std::vector<Bucket>& buckets,
                                   const GradientCode& code)
    : context_(context), buckets_(buckets) {
  for (const Bucket& bucket : buckets) {
    check_coded(context, bucket, fmt::format("low_rank {}", code.low_rank));
    Messages& messages = messages_.emplace_back();
    for (std::size_t i = 0; i < bucket.segments().size(); ++i) {
      add_part(messages, bucket, i, code);
    }
    messages.first_count += static_cast<std::int64_t>(bucket.segments().size());
  }
  works_.resize(static_cast<std::size_t>(std::ranges::count_if(
      messages_, [](const Messages& messages) { return messages.later_count > 0; })));
}

void LowRankGradients::add_part(Messages& messages, const Bucket& bucket, std::size_t segment,
                                const GradientCode& code) {
  const Segment& place = bucket.segments()[segment];
  const auto options = bucket.flat().options();
  Part part{.segment = segment, .first = messages.first_count, .later = messages.later_count};
  if (const auto shape = matrix_shape(place, code.low_rank)) {
    part.shape = *shape;
    part.q = at::zeros({shape->columns, shape->rank}, options);
    part.left =
        code.has_error_feedback ? at::zeros({shape->rows, shape->columns}, options) : at::Tensor();
    messages.first_count += shape->rows * shape->rank;
    messages.later_count += shape->columns * shape->rank;
  } else {
    messages.first_count += place.count();
  }
  messages.parts.push_back(part);
}

void LowRankGradients::prepare(std::size_t b, std::span<const std::uint8_t> flags) {
  const torch::NoGradGuard no_grad;
  const Bucket& bucket = buckets_[b];
  Messages& messages = messages_[b];
  if (!messages.first.defined()) {
    messages.first = at::zeros({messages.first_count}, bucket.flat().options());
    messages.later = at::zeros({messages.later_count}, bucket.flat().options());
    messages.own = at::zeros({messages.later_count}, bucket.flat().options());
  }
  for (std::size_t i = 0; i < messages.parts.size(); ++i) {
    const Part& part = messages.parts[i];
    const at::Tensor& gradient = bucket.gradient(part.segment);
    if (!part.is_matrix()) {
      messages.first.narrow(0, part.first, gradient.numel()).copy_(gradient.reshape({-1}));
      continue;
    }
    prepare_factor(part.q, b * messages.parts.size() + i);
    const at::Tensor p = part.p_in(messages.first);
    p.copy_(as_matrix(gradient, part.shape).mm(part.q));
    if (part.left.defined()) {
      p.addmm_(part.left, part.q);
    }
  }
  const auto count = static_cast<std::int64_t>(flags.size());
  for (std::int64_t i = 0; i < count; ++i) {
    messages.first.narrow(0, messages.first_count - count + i, 1)
        .fill_(static_cast<double>(flags[static_cast<std::size_t>(i)]));
  }
}

Work LowRankGradients::send(std::size_t b) {
  ops::AllreduceOptions options;
  options.name = gradient_name(buckets_[b]) + ", left factors";
  return ops::allreduce_nonblocking(context_, view_of(messages_[b].first), options);
}

std::vector<std::uint8_t> LowRankGradients::flags_in(const Messages& messages) const {
  const auto count = static_cast<std::int64_t>(messages.parts.size());
  const at::Tensor all =
      messages.first.narrow(0, messages.first_count - count, count).to(at::kDouble);
  std::vector<std::uint8_t> flags;
  for (std::int64_t i = 0; i < count; ++i) {
    flags.push_back(all.const_data_ptr<double>()[i] > 0.0 ? 1 : 0);
  }
  return flags;
}

void LowRankGradients::begin_later(std::size_t b) {
  Messages& messages = messages_[b];
  for (const Part& part : messages.parts) {
    if (part.is_matrix()) {
      const at::Tensor p = part.p_in(messages.first);
      orthonormalize(p);
      const at::Tensor matrix = as_matrix(buckets_[b].gradient(part.segment), part.shape);
      const at::Tensor q = part.q_in(messages.later);
      q.copy_(matrix.t().mm(p));
      if (part.left.defined()) {
        q.addmm_(part.left.t(), p);
      }
    }
  }
  messages.own.copy_(messages.later);
}

void LowRankGradients::finish() {
  const torch::NoGradGuard no_grad;
  run_overlapped_round(context_, later_calls(), works_, [&](std::size_t& issued) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (messages_[b].later_count == 0) {
        continue;
      }
      begin_later(b);
      ops::AllreduceOptions options;
      options.name = gradient_name(buckets_[b]) + ", right factors";
      ++issued;
      works_[issued - 1] =
          ops::allreduce_nonblocking(context_, view_of(messages_[b].later), options);
    }
  });
  const bool is_finite = are_finite();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    take_in(b, is_finite);
  }
}

// The sums have the same bits on all ranks, and one that is not finite anywhere is not in the sum.
bool LowRankGradients::are_finite() const {
  return std::ranges::all_of(messages_, [](const Messages& messages) {
    return is_finite(messages.first) && is_finite(messages.later);
  });
}

void LowRankGradients::take_in(std::size_t b, bool goes_on) {
  const Messages& messages = messages_[b];
  const std::vector<std::uint8_t> any = flags_in(messages);
  for (const Part& part : messages.parts) {
    const at::Tensor& gradient = buckets_[b].gradient(part.segment);
    if (any[part.segment] == 0) {
      continue;
    }
    if (part.is_matrix()) {
      take_matrix(messages, part, gradient, goes_on);
    } else {
      gradient.copy_(
          messages.first.narrow(0, part.first, gradient.numel()).reshape(gradient.sizes()));
    }
  }
  buckets_[b].set_flags(any);
}

void LowRankGradients::take_matrix(const Messages& messages, const Part& part,
                                   const at::Tensor& gradient, bool goes_on) const {
  const at::Tensor p = part.p_in(messages.first);
  const at::Tensor q = part.q_in(messages.later);
  if (part.left.defined() && goes_on) {
    const at::Tensor left =
        as_matrix(gradient, part.shape) + part.left - product(p, part.q_in(messages.own));
    if (is_finite(left)) {
      part.left.copy_(left);
    }
  }
  gradient.copy_(product(p, q).reshape(gradient.sizes()));
  if (goes_on) {
    part.q.copy_(q);
  }
}

void LowRankGradients::forget() {
  for (Messages& messages : messages_) {
    messages.first.reset();
  }
}

NamedTensors LowRankGradients::state() const {
  NamedTensors state;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const Part& part : messages_[b].parts) {
      const std::string& name = buckets_[b].segments()[part.segment].name;
      if (part.is_matrix()) {
        state.push_back({"factor of " + name, part.q});
      }
      if (part.left.defined()) {
        state.push_back({"error of " + name, part.left});
      }
    }
  }
  return state;
}

void LowRankGradients::restart() {
  for (const auto& [name, tensor] : state()) {
    tensor.zero_();
  }
}

}  // namespace bluefog::optimizers
