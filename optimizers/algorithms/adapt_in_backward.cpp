#include "optimizers/algorithms/adapt_in_backward.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/left_to_the_step.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

AdaptInBackward::AdaptInBackward(Context& context, std::vector<Bucket>& buckets, EarlyStep early,
                                 const RethrowInBackward& rethrow)
    : Algorithm(buckets),
      context_(context),
      averages_(context, values_of(buckets), names_of(buckets)),
      early_(std::move(early)),
      works_(buckets.size()),
      readiness_(buckets),
      hooks_(buckets,
             {.on_ready = [this](const GradientArrival& arrival) { on_ready(arrival); },
              .on_compiled = [this] { refuse_compiled(); }},
             rethrow) {}

void AdaptInBackward::begin() {
  readiness_.clear();
  round_ = early_.begin();
  phase_ = round_ == nullptr ? Phase::Late : Phase::Backward;
}

void AdaptInBackward::on_ready(const GradientArrival& arrival) {
  if (arrival.is_first_of_pass) {
    forget_lost_step();
    has_failed_in_pass_ = false;
  }
  if (!communicates_ || has_failed_in_pass_) {
    return;
  }
  if (arrival.bucket < launched_) {  // the round goes on: its step may still come
    throw StateError(fmt::format(
        "rank {}, parameter '{}': got a gradient after it had been stepped with one; expected one "
        "backward pass for each step (step_in_backward), and none inside of it (a reentrant "
        "checkpoint, a hook) that reaches a parameter after it",
        context_.rank(), buckets_[arrival.bucket].segments()[arrival.segment].name));
  }
  try {
    take_gradient(arrival);
  } catch (const std::exception& error) {
    has_failed_in_pass_ = true;
    fail_round(error.what());
    if (!is_left_to_the_step(context_, error)) {
      throw;
    }
  }
}

// After a pass inside of this one no gradient is known to be whole before the step.
void AdaptInBackward::take_gradient(const GradientArrival& arrival) {
  if (arrival.is_first_of_pass) {
    hooks_.check_alone(fmt::format("rank {}", context_.rank()));
  }
  if (arrival.is_inside_another_pass) {
    phase_ = Phase::Late;
  }
  if (phase_ == Phase::Idle) {
    begin();
  }
  if (phase_ == Phase::Late) {
    return;
  }
  readiness_.note(arrival.bucket, arrival.segment);
  while (launched_ < buckets_.size() && readiness_.is_whole(launched_)) {
    launch(*round_, early_.step_bucket);
  }
}

// All hooks of a pass that is compiled would be left out.
void AdaptInBackward::refuse_compiled() {
  const std::string reason = fmt::format(
      "rank {}: expected a backward pass of autograd's engine, found compiled autograd, which leaves "
      "out the hooks that step parameters (step_in_backward): leave one of the two away",
      context_.rank());
  if (communicates_) {
    fail_round(reason);
  }
  throw UnsupportedError(reason);
}

void AdaptInBackward::launch(const Round& round, const StepBucket& step_bucket) {
  const std::size_t b = launched_;
  step_bucket(buckets_[b]);
  ++launched_;
  if (round.averaging != Averaging::Nobody) {
    works_[b] = averages_.start(round, b);
  }
}

void AdaptInBackward::step(const Round& round, const StepBucket& step_bucket) {
  try {
    while (launched_ < buckets_.size()) {
      launch(round, step_bucket);
    }
  } catch (const std::exception& error) {
    fail_round(error.what());
    throw;
  }
  launched_ = 0;
  phase_ = Phase::Idle;
  wait_all(works_);
  note_changes(buckets_);
}

void AdaptInBackward::drain() { wait_all(works_); }

// Peers make one call for each bucket: those that this rank will not make are refused.
void AdaptInBackward::fail_round(std::string_view reason) {
  for (; launched_ < buckets_.size(); ++launched_) {
    context_.core().engine().refuse(reason);
  }
  forget_round();
  note_failed_round();
}

void AdaptInBackward::forget_round() {
  launched_ = 0;
  phase_ = Phase::Idle;
  end_all(works_);
}

}  // namespace bluefog::optimizers
