#include "optimizers/algorithms/outer/delayed_outer_steps.hpp"

#include <torch/torch.h>

#include <exception>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/flat_arithmetic.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

DelayedOuterSteps::DelayedOuterSteps(Context& context, std::vector<Bucket>& buckets,
                                     const OuterMomentum& rule)
    : Algorithm(buckets),
      context_(context),
      rule_(rule),
      start_(buckets),
      moments_(make_states(buckets)),
      works_(buckets.size()) {}

void DelayedOuterSteps::step_locally(const StepBucket& step_bucket) {
  start_.begin(buckets_);
  for (const Bucket& bucket : buckets_) {
    step_bucket(bucket);
  }
}

// An average that has failed does not keep this rank from the next one, for which others wait: else
// one failure would go to and fro between the ranks for ever.
void DelayedOuterSteps::step(const Round& round, const StepBucket& step_bucket) {
  std::exception_ptr failed;
  run_round(context_, buckets_.size(), [&](std::size_t& issued) {
    step_locally(step_bucket);
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

void DelayedOuterSteps::send(const Round& round, std::size_t& issued) {
  try {
    start_averages(round, issued);
  } catch (...) {
    discard();
    throw;
  }
  is_under_way_ = true;
}

void DelayedOuterSteps::take_effect() {
  if (!std::exchange(is_under_way_, false)) {
    return;
  }
  try {
    wait_all(works_);
  } catch (...) {
    discard();
    throw;
  }
  apply_averages();
  note_changes(buckets_);
}

void DelayedOuterSteps::discard() {
  end_all(works_);
  is_under_way_ = false;
  forget_averages();
}

NamedTensors DelayedOuterSteps::state() const {
  NamedTensors state = start_.state();
  for (NamedTensor& momentum : named(moments_, "outer momentum")) {
    state.push_back(std::move(momentum));
  }
  return state;
}

void DelayedOuterSteps::restart() {
  start_.restart();
  zero(moments_);
}

}  // namespace bluefog::optimizers
