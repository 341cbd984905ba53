#include "optimizers/algorithms/consensus/adaptive_consensus.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

AdaptiveConsensus::AdaptiveConsensus(const AlgorithmParts& parts, Order order)
    : Algorithm(parts.buckets),
      context_(parts.context),
      order_(order),
      rule_(ConsensusRule::of(parts.options)),
      learning_rate_(parts.options.learning_rate),
      averages_(parts.context, values_of(parts.buckets), names_of(parts.buckets)),
      works_(parts.buckets.size()),
      highest_learning_rate_(at::zeros({1}, at::kDouble)),
      step_square_(at::zeros({1}, at::kDouble)),
      averages_made_(at::zeros({1}, at::kLong)) {
  if (rule_.most_rounds > 1 && parts.options.plans) {
    throw InvalidArgument(fmt::format("rank {}, DistributedOptimizer: {}", context_.rank(),
                                      why_unfit_plans(parts.options)));
  }
  if (rule_.most_rounds > 1) {
    schedule_ = mixing_of(parts.options, context_.size());
  }
  if (rule_.step_size != 1.0 || rule_.decay != 0.0) {
    starts_ = make_states(buckets_);
  }
  if (looks()) {
    sketch_.emplace(context_, buckets_);
  }
}

// The calls of a part of the step, after which all ranks know whether another one comes.
std::size_t AdaptiveConsensus::calls_due() const {
  if (looks()) {
    return buckets_.size() + DistanceSketch::kCalls;
  }
  return buckets_.size() * static_cast<std::size_t>(rule_.most_rounds);
}

double AdaptiveConsensus::share_of_step() {
  if (rule_.decay == 0.0) {
    return rule_.step_size;
  }
  const double rate = learning_rate_();
  const double highest = std::max(highest_learning_rate_.item<double>(), rate);
  highest_learning_rate_.fill_(highest);  // a warm-up's first rate would have κ grow beyond bounds
  return highest <= 0.0 ? rule_.step_size : rule_.step_size * std::pow(rate / highest, rule_.decay);
}

void AdaptiveConsensus::begin_local_steps() {
  before_step_.clear();
  step_square_.zero_();
  for (std::size_t b = 0; sketch_ && b < buckets_.size(); ++b) {
    before_step_.push_back(sketch_->of(b));
  }
}

void AdaptiveConsensus::step_locally(std::size_t b, const StepBucket& step_bucket) {
  step_bucket(buckets_[b]);
  if (sketch_) {
    step_square_.add_((sketch_->of(b) - before_step_[b]).square().sum());
  }
}

void AdaptiveConsensus::step(const Round& round, const StepBucket& step_bucket) {
  const double share = share_of_step();
  const auto step_one = [&](std::size_t b) { step_locally(b, step_bucket); };
  if (order_ == Order::AdaptThenCombine) {
    begin_local_steps();
    average(round, share, step_one);
    note_changes(buckets_);
    return;
  }
  average(round, share, [](std::size_t /*bucket*/) {});
  note_changes(buckets_);
  step_alone(step_bucket);
}

void AdaptiveConsensus::step_alone(const StepBucket& step_bucket) {
  begin_local_steps();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    step_locally(b, step_bucket);
  }
}

// Without a bound a step makes `most_rounds` averages of the schedule's, which an exact one's period
// may be; with one, fewer, and the next step goes on with the next matrix all the same.
Round AdaptiveConsensus::round_of(const Round& round, std::int64_t average) const {
  Round own = round;
  if (schedule_) {
    const std::int64_t first = looks() ? round.index : round.index * rule_.most_rounds;
    own.plan = schedule_->plan_for(context_.rank(), first + average);
    own.check = ops::PlanCheck::Trusted;
  }
  return own;
}

template <typename MakeReady>
void AdaptiveConsensus::start_all(const Round& round, double share, std::size_t& issued,
                                  const MakeReady& make_ready) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    make_ready(b);
    if (share != 1.0) {
      starts_[b].copy_(buckets_[b].flat());
    }
    ++issued;
    works_[b] = averages_.start(round, b);
  }
}

void AdaptiveConsensus::end_all_started(double share) {
  wait_all(works_);
  averages_made_.add_(1);
  for (std::size_t b = 0; share != 1.0 && b < buckets_.size(); ++b) {
    update_elements(
        [share](auto& x, const auto& start) {
          x = start + NumberOf<decltype(x)>(share) * (x - start);
        },
        buckets_[b].flat(), ReadOnly{starts_[b]});
  }
}

// A rank that fails leaves out the calls of the part that it is in: where ranks look at their
// distance, its end is where all of them hear of it, and no other part begins.
template <typename MakeReady>
void AdaptiveConsensus::average(const Round& round, double share, const MakeReady& make_ready) {
  const std::int64_t in_part = looks() ? 1 : rule_.most_rounds;
  bool is_done = false;
  for (std::int64_t made = 0; !is_done; made += in_part) {
    is_done = made + in_part >= rule_.most_rounds;
    const bool checks = !is_done;
    const std::size_t calls = buckets_.size() * static_cast<std::size_t>(in_part) +
                              (looks() && checks ? DistanceSketch::kCalls : 0);
    run_overlapped_round(context_, calls, works_, [&](std::size_t& issued) {
      for (std::int64_t i = made; i < made + in_part; ++i) {
        start_all(round_of(round, i), share, issued, [&](std::size_t b) {
          if (i == 0) {
            make_ready(b);
          }
        });
        end_all_started(share);
      }
      is_done = is_done || is_near(issued);
    });
  }
}

bool AdaptiveConsensus::is_near(std::size_t& issued) const {
  const auto found = sketch_->distance(step_square_.item<double>(), issued);
  return found.distance <= rule_.bound * std::sqrt(found.mean);
}

NamedTensors AdaptiveConsensus::state() const {
  return {{"highest learning rate", highest_learning_rate_},
          {"square of the local step", step_square_},
          {"averages made", averages_made_}};
}

void AdaptiveConsensus::restart() {
  for (const auto& [name, tensor] : state()) {
    tensor.zero_();
  }
}

AlgorithmRow with_consensus(AlgorithmRow row, AdaptiveConsensus::Order order) {
  for (AlgorithmOption& option : consensus_options()) {
    row.options.push_back(std::move(option));
  }
  row.why_unfit_schedule = why_unfit_consensus;
  row.why_unfit_plan = [](const DistributedOptimizerOptions& options, const NeighborPlan& /*plan*/,
                          const NeighborPlan* /*before*/) { return why_unfit_plans(options); };
  row.make = [plain = std::move(row.make), order](AlgorithmParts parts) {
    return ConsensusRule::of(parts.options).is_plain()
               ? plain(std::move(parts))
               : std::make_unique<AdaptiveConsensus>(parts, order);
  };
  return row;
}

}  // namespace bluefog::optimizers
