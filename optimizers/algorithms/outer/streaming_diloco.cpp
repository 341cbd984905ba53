#include "optimizers/algorithms/outer/streaming_diloco.hpp"

#include <torch/torch.h>

#include <exception>
#include <memory>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/algorithms/outer/outer_steps.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {
namespace {

/// Fragments begin at whole cache lines of any dtype.
constexpr std::int64_t kElementsTogether = 64;
constexpr double kManyFragments = 1e6;

std::int64_t cut(std::int64_t count, std::int64_t fragment, std::int64_t fragments) {
  return fragment == fragments
             ? count
             : count / kElementsTogether * fragment / fragments * kElementsTogether;
}

}  // namespace

StreamingDiloco::StreamingDiloco(Context& context, std::vector<Bucket>& buckets,
                                 const OuterMomentum& rule, const Fragments& fragments)
    : Algorithm(buckets),
      context_(context),
      rule_(rule),
      fragments_(fragments),
      start_(buckets),
      moments_(make_states(buckets)),
      works_(buckets.size()) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    std::int64_t longest = 0;
    for (std::int64_t p = 0; p < fragments.count; ++p) {
      longest = std::max(longest, part(b, p).count);
    }
    sent_.push_back(moments_[b].narrow(0, 0, longest).clone());
  }
}

StreamingDiloco::Part StreamingDiloco::part(std::size_t b, std::int64_t fragment) const {
  const std::int64_t count = buckets_[b].flat().numel();
  const std::int64_t first = cut(count, fragment, fragments_.count);
  return {.first = first, .count = cut(count, fragment + 1, fragments_.count) - first};
}

void StreamingDiloco::step_locally(const StepBucket& step_bucket) {
  start_.begin(buckets_);
  for (const Bucket& bucket : buckets_) {
    step_bucket(bucket);
  }
  ++steps_since_;
}

void StreamingDiloco::step_alone(const StepBucket& step_bucket) {
  step_locally(step_bucket);
  if (steps_since_ >= fragments_.delay_steps) {
    take_effect();
  }
}

// An average that has failed does not keep this rank from the next one, for which others wait: else
// one failure would go to and fro between the ranks for ever.
void StreamingDiloco::step(const Round& round, const StepBucket& step_bucket) {
  std::exception_ptr failed;
  const std::int64_t fragment = round.index % fragments_.count;
  run_round(context_, buckets_.size(), [&](std::size_t& issued) {
    try {
      step_locally(step_bucket);
      try {
        take_effect();
      } catch (const TimeoutError&) {
        throw;  // or each step would wait as long
      } catch (const Error&) {
        failed = std::current_exception();
      }
      for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const Part part = this->part(b, fragment);
        const at::Tensor sent = sent_[b].narrow(0, 0, part.count);
        sent.copy_(buckets_[b].flat().narrow(0, part.first, part.count));
        ++issued;
        works_[b] = ops::allreduce_nonblocking(context_, on_current_stream(view_of(sent)),
                                               {.name = buckets_[b].name()});
      }
    } catch (...) {
      end_all(works_);
      throw;
    }
  });
  under_way_ = fragment;
  steps_since_ = 0;
  if (failed) {
    std::rethrow_exception(failed);
  }
  if (fragments_.delay_steps == 0) {
    take_effect();
  }
}

void StreamingDiloco::take_effect() {
  if (under_way_ < 0) {
    return;
  }
  try {
    wait_all(works_);
  } catch (...) {
    under_way_ = -1;
    throw;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    take_effect(b);
  }
  under_way_ = -1;
  note_changes(buckets_);
}

void StreamingDiloco::take_effect(std::size_t b) {
  const Part part = this->part(b, under_way_);
  if (part.count == 0) {
    return;
  }
  const auto of = [&](const at::Tensor& whole) { return whole.narrow(0, part.first, part.count); };
  const at::Tensor average = sent_[b].narrow(0, 0, part.count);
  update_elements(
      [rule = rule_, share = fragments_.local_share](auto& x, auto& theta, auto& v,
                                                     const auto& average_of_x) {
        using Number = NumberOf<decltype(x)>;
        rule.move(theta, v, average_of_x);
        x = theta + Number(share) * (x - theta);
      },
      of(buckets_[b].flat()), of(start_[b]), of(moments_[b]), ReadOnly{average});
}

void StreamingDiloco::drain() { take_effect(); }

void StreamingDiloco::discard() {
  end_all(works_);
  under_way_ = -1;
}

NamedTensors StreamingDiloco::state() const {
  NamedTensors state = start_.state();
  for (NamedTensor& momentum : named(moments_, "outer momentum")) {
    state.push_back(std::move(momentum));
  }
  return state;
}

void StreamingDiloco::restart() {
  start_.restart();
  zero(moments_);
}

AlgorithmRow streaming_diloco_row() {
  AlgorithmRow row = outer_row_of_all_ranks(OuterMomentum::nesterov);
  row.name = "streaming_diloco";
  row.equation =
      "as diloco for one of P fragments after the other; τ steps later x ← a x + (1 − a) θ";
  row.description =
      "DiLoCo in fragments, each averaged while local steps go on; H is P times "
      "`num_steps_per_communication`.";
  row.source = "arXiv 2501.18512";
  row.overlap = "τ local steps";
  row.memory = {.copies = 2, .note = "and 1/P of one", .carried = "θ and v"};
  row.options = {{.name = "fragments",
                  .default_value = std::int64_t{4},
                  .meaning = "P, from 1 to below 1,000,000",
                  .least = 1.0,
                  .below = kManyFragments},
                 {.name = "delay_steps",
                  .default_value = std::int64_t{1},
                  .meaning = "τ, from 0 to below 1,000,000",
                  .least = 0.0,
                  .below = kManyFragments},
                 {.name = "local_share",
                  .default_value = 0.5,
                  .meaning = "a, from 0 to below 1",
                  .least = 0.0,
                  .below = 1.0},
                 outer_learning_rate(0.7),
                 outer_momentum(0.9)};
  row.mixing = {.stochastic = Stochastic::Any, .note = "none: averages over all ranks"};
  row.make = [](AlgorithmParts parts) {
    return std::make_unique<StreamingDiloco>(
        parts.context, parts.buckets, OuterMomentum::nesterov(parts.options),
        StreamingDiloco::Fragments{
            .count = static_cast<std::int64_t>(parts.number("fragments")),
            .delay_steps = static_cast<std::int64_t>(parts.number("delay_steps")),
            .local_share = parts.number("local_share")});
  };
  return row;
}

}  // namespace bluefog::optimizers
