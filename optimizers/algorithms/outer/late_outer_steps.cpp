#include "optimizers/algorithms/outer/late_outer_steps.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"

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
    : DelayedOuterSteps(context, buckets, rule), averaging_(averaging) {}

void LateOuterSteps::start_averages(const Round& round, std::size_t& issued) {
  Round own = round;
  own.averaging = averaging_;
  if (!averages_) {
    sent_ = make_states(buckets_);
    average_ = make_states(buckets_);
    averages_.emplace(context_, views_of(average_), names_of(buckets_));
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    sent_[b].copy_(buckets_[b].flat());
    average_[b].copy_(buckets_[b].flat());
    ++issued;
    works_[b] = averages_->start(own, b);
  }
}

void LateOuterSteps::apply_averages() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    update_elements(
        [rule = rule_](auto& x, auto& theta, auto& v, const auto& sent, const auto& average) {
          rule.move(theta, v, average);
          x = theta + (x - sent);
        },
        buckets_[b].flat(), start_[b], moments_[b], ReadOnly{sent_[b]}, ReadOnly{average_[b]});
  }
}

void LateOuterSteps::forget_averages() {
  averages_.reset();
  sent_.clear();
  average_.clear();
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
    // The schedule was looked at, and this with it, but where the program gives plans.
    if (const std::string problem = why_no_late_code(parts.options); !problem.empty()) {
      throw InvalidArgument(
          fmt::format("rank {}, {}: {}", parts.context.rank(), parts.options.call_name, problem));
    }
    return std::make_unique<LateOuterSteps>(parts.context, parts.buckets, rule(parts.options),
                                            averaging);
  };
  return row;
}

}  // namespace bluefog::optimizers
