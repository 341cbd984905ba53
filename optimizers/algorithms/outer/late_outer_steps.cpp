#include "optimizers/algorithms/outer/late_outer_steps.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {
namespace {

constexpr const char* kOuterDelay = "outer_delay";

std::string why_no_late_code(const DistributedOptimizerOptions& options) {
  return options.compression && number_of(options, kOuterDelay) != 0.0
             ? fmt::format(
                   "{}: {} expects 0 with a compression, whose codes each follow on what the "
                   "one before has left, found 1 with {}",
                   kOuterDelay, options.algorithm.text(), options.compression->name())
             : std::string();
}

}  // namespace

LateOuterSteps::LateOuterSteps(Context& context, std::vector<Bucket>& buckets,
                               const OuterMomentum& rule, Averaging averaging)
    : Algorithm(buckets),
      context_(context),
      rule_(rule),
      averaging_(averaging),
      start_(buckets),
      moments_(make_states(buckets)),
      works_(buckets.size()) {}

void LateOuterSteps::step_alone(const StepBucket& step_bucket) {
  start_.begin(buckets_);
  Algorithm::step_alone(step_bucket);
}

// An average that has failed does not keep this rank from the next one, for which others wait: else
// one failure would go to and fro between the ranks for ever.
void LateOuterSteps::step(const Round& round, const StepBucket& step_bucket) {
  std::exception_ptr failed;
  run_round(context_, buckets_.size(), [&](std::size_t& issued) {
    step_alone(step_bucket);
    try {
      take_effect();
    } catch (const TimeoutError&) {
      throw;  // or each step would wait as long
    } catch (const Error&) {
      failed = std::current_exception();
    }
    send(round, issued);
  });
  if (failed) {
    std::rethrow_exception(failed);
  }
}

void LateOuterSteps::send(const Round& round, std::size_t& issued) {
  Round own = round;
  own.averaging = averaging_;
  if (!averages_) {
    sent_ = make_states(buckets_);
    average_ = make_states(buckets_);
    averages_.emplace(context_, views_of(average_), names_of(buckets_));
  }
  try {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      sent_[b].copy_(buckets_[b].flat());
      average_[b].copy_(buckets_[b].flat());
      ++issued;
      works_[b] = averages_->start(own, b);
    }
  } catch (...) {
    discard();
    throw;
  }
  is_under_way_ = true;
}

void LateOuterSteps::take_effect() {
  if (!std::exchange(is_under_way_, false)) {
    return;
  }
  try {
    wait_all(works_);
  } catch (...) {
    discard();
    throw;
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [rule = rule_](auto& x, auto& theta, auto& v, const auto& sent, const auto& average) {
          rule.move(theta, v, average);
          x = theta + (x - sent);
        },
        buckets_[b].flat(), start_[b], moments_[b], ReadOnly{sent_[b]}, ReadOnly{average_[b]});
  }
  note_changes(buckets_);
}

void LateOuterSteps::discard() {
  end_all(works_);
  is_under_way_ = false;
  // Calls that have timed out go on with theirs.
  averages_.reset();
  sent_.clear();
  average_.clear();
}

NamedTensors LateOuterSteps::state() const {
  NamedTensors state = start_.state();
  for (NamedTensor& momentum : named(moments_, "outer momentum")) {
    state.push_back(std::move(momentum));
  }
  return state;
}

void LateOuterSteps::restart() {
  start_.restart();
  zero(moments_);
}

AlgorithmOption outer_delay() {
  return {.name = kOuterDelay,
          .default_value = std::int64_t{0},
          .meaning =
              "1: an average takes effect one outer step late, and local steps go on; 0: they "
              "wait for it",
          .least = 0.0,
          .below = 2.0};
}

AlgorithmRow with_outer_delay(AlgorithmRow row,
                              std::function<OuterMomentum(const DistributedOptimizerOptions&)> rule,
                              Averaging averaging) {
  row.options.push_back(outer_delay());
  row.overlap += "; with `outer_delay` those up to the next outer step";
  row.why_unfit_schedule = [of_rule = row.why_unfit_schedule](
                               const DistributedOptimizerOptions& options,
                               const Schedule& schedule) {
    const std::string problem = why_no_late_code(options);
    return problem.empty() ? of_rule(options, schedule) : problem;
  };
  row.make = [waiting = std::move(row.make), rule = std::move(rule),
              averaging](AlgorithmParts parts) -> std::unique_ptr<Algorithm> {
    if (parts.number(kOuterDelay) == 0.0) {
      return waiting(std::move(parts));
    }
    return std::make_unique<LateOuterSteps>(parts.context, parts.buckets, rule(parts.options),
                                            averaging);
  };
  return row;
}

}  // namespace bluefog::optimizers
