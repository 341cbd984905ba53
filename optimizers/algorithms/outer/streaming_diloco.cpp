#include "optimizers/algorithms/outer/streaming_diloco.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "ops/collectives.hpp"
#include "optimizers/algorithms/outer/outer_steps.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"

namespace bluefog::optimizers {
namespace {

/// Fragments begin at whole cache lines of float32.
constexpr std::int64_t kElementsTogether = 16;
constexpr double kManyFragments = 1e6;

std::int64_t cut(std::int64_t count, std::int64_t fragment, std::int64_t fragments) {
  return fragment == fragments
             ? count
             : count / kElementsTogether * fragment / fragments * kElementsTogether;
}

StreamingDiloco::Fragments fragments_of(const DistributedOptimizerOptions& options) {
  return {.count = static_cast<std::int64_t>(number_of(options, "fragments")),
          .delay_steps = static_cast<std::int64_t>(number_of(options, "delay_steps")),
          .local_share = number_of(options, "local_share")};
}

/// An average of what was sent replaces the local steps that were made since.
std::string why_no_progress(const DistributedOptimizerOptions& options) {
  const StreamingDiloco::Fragments fragments = fragments_of(options);
  const bool is_replaced_whole = fragments.count == 1 && fragments.local_share == 0.0 &&
                                 fragments.delay_steps >= options.num_steps_per_communication;
  return is_replaced_whole
             ? fmt::format(
                   "delay_steps: streaming_diloco with one fragment and a local_share of 0 "
                   "expects fewer steps than num_steps_per_communication ({}), because "
                   "averages replace the steps of their delay, found {}",
                   options.num_steps_per_communication, fragments.delay_steps)
             : std::string();
}

}  // namespace

StreamingDiloco::StreamingDiloco(Context& context, std::vector<Bucket>& buckets,
                                 const OuterMomentum& rule, const Fragments& fragments)
    : DelayedOuterSteps(context, buckets, rule), fragments_(fragments), sent_(buckets.size()) {}

// Bucket b begins with its b-th part, so that short buckets do not all have the same fragment.
StreamingDiloco::Part StreamingDiloco::part(std::size_t b, std::int64_t fragment) const {
  const std::int64_t count = buckets_[b].flat().numel();
  const std::int64_t place = (fragment + static_cast<std::int64_t>(b)) % fragments_.count;
  const std::int64_t first = cut(count, place, fragments_.count);
  return {.first = first, .count = cut(count, place + 1, fragments_.count) - first};
}

void StreamingDiloco::step_locally(const StepBucket& step_bucket) {
  DelayedOuterSteps::step_locally(step_bucket);
  ++steps_since_;
}

void StreamingDiloco::step_alone(const StepBucket& step_bucket) {
  step_locally(step_bucket);
  if (steps_since_ >= fragments_.delay_steps) {
    take_effect();
  }
}

void StreamingDiloco::step(const Round& round, const StepBucket& step_bucket) {
  DelayedOuterSteps::step(round, step_bucket);
  if (fragments_.delay_steps == 0) {
    take_effect();
  }
}

void StreamingDiloco::start_averages(const Round& round, std::size_t& issued) {
  under_way_ = round.index % fragments_.count;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Part part = this->part(b, under_way_);
    if (!sent_[b].defined() || sent_[b].numel() < part.count) {
      sent_[b] = moments_[b].narrow(0, 0, part.count).clone();
    }
    const at::Tensor sent = sent_[b].narrow(0, 0, part.count);
    sent.copy_(buckets_[b].flat().narrow(0, part.first, part.count));
    ++issued;
    works_[b] = ops::allreduce_nonblocking(context_, on_current_stream(view_of(sent)),
                                           {.name = buckets_[b].name()});
  }
  steps_since_ = 0;
}

void StreamingDiloco::apply_averages() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    apply_average(b, part(b, under_way_));
  }
}

void StreamingDiloco::apply_average(std::size_t b, const Part& part) {
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

void StreamingDiloco::forget_averages() { std::ranges::fill(sent_, at::Tensor()); }

AlgorithmRow streaming_diloco_row() {
  AlgorithmRow row = outer_row_of_all_ranks(OuterMomentum::nesterov);
  row.name = "streaming_diloco";
  row.equation =
      "as diloco for one of P fragments after the other; τ steps later x ← a x + (1 − a) θ";
  row.description =
      "DiLoCo in fragments, each averaged while local steps go on; H is P times "
      "`num_steps_per_communication`.";
  row.source = "arXiv 2501.18512";
  row.overlap = "the local steps of its delay";
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
  row.why_unfit_schedule = [of_rule = row.why_unfit_schedule](
                               const DistributedOptimizerOptions& options,
                               const Schedule& schedule) {
    const std::string problem = why_no_progress(options);
    return problem.empty() ? of_rule(options, schedule) : problem;
  };
  row.make = [](AlgorithmParts parts) {
    return std::make_unique<StreamingDiloco>(parts.context, parts.buckets,
                                             OuterMomentum::nesterov(parts.options),
                                             fragments_of(parts.options));
  };
  return row;
}

}  // namespace bluefog::optimizers
