#include "optimizers/algorithms/gradient_allreduce.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/left_to_the_step.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/buckets/gradient_placement.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

GradientAllreduce::GradientAllreduce(Context& context, std::vector<Bucket>& buckets,
                                     const RethrowInBackward& rethrow, const GradientCode& code)
    : Algorithm(buckets),
      context_(context),
      where_(fmt::format("rank {}, gradient all-reduce", context.rank())),
      works_(buckets.size()),
      readiness_(buckets),
      hooks_(buckets,
             {.on_ready = [this](const GradientArrival& arrival) { on_ready(arrival); },
              .on_end = [this] { end_pass(); },
              .on_compiled = [this] { refuse_compiled(); }},
             rethrow) {
  for (Bucket& bucket : buckets) {
    bucket.add_gradients();
    has_gradient_.emplace_back(bucket.segments().size(), 0);
    own_flags_.emplace_back(bucket.segments().size(), 0);
  }
  means_ = make_gradient_means(context, buckets, code);
}

void GradientAllreduce::on_ready(const GradientArrival& arrival) {
  if (arrival.is_first_of_pass) {
    forget_lost_step();
    has_failed_in_pass_ = false;
    is_late_ = false;
  }
  if (has_failed_in_pass_) {
    return;  // whoever began a pass inside of this one has caught the error
  }
  try {
    if (communicates_) {
      enter_round(arrival);
    }
    if (arrival.is_first_of_pass) {
      hooks_.check_alone(where_);
    }
    take_gradient(arrival);
  } catch (const std::exception& error) {
    fail_pass(error.what());
    if (!is_left_to_the_step(context_, error)) {
      throw;
    }
  }
}

void GradientAllreduce::end_pass() {
  try {
    finish_round();
  } catch (const std::exception& error) {
    if (!is_left_to_the_step(context_, error)) {
      throw;
    }
  }
}

void GradientAllreduce::enter_round(const GradientArrival& arrival) {
  if (phase_ != Phase::Backward) {
    phase_ = Phase::Backward;
    launched_ = 0;
    readiness_.clear();
  } else if (arrival.is_first_of_pass && launched_ == 0) {
    readiness_.clear();  // the pass before has failed
  }
}

void GradientAllreduce::take_gradient(const GradientArrival& arrival) {
  const auto [bucket, segment, is_first, is_inside] = arrival;
  const std::string& name = buckets_[bucket].segments()[segment].name;
  if (communicates_ && bucket < launched_) {
    throw StateError(fmt::format(
        "{}, parameter '{}': its gradient changed after it had been sent; expected one backward pass at "
        "a time, none of them to fail in between, and those inside of another one (reentrant "
        "checkpoints, hooks) to reach no parameter that the outer one reaches before them",
        where_, name));
  }
  if (buckets_[bucket].segments()[segment].parameter.grad().requires_grad()) {
    throw UnsupportedError(fmt::format(
        "{}, parameter '{}': expected a gradient without a graph, because the mean has none, found "
        "one of create_graph; take gradients of gradients by torch.autograd.grad, inside the loss",
        where_, name));
  }
  place_gradient(buckets_[bucket], segment, where_);
  has_gradient_[bucket][segment] = 1;
  if (communicates_) {
    is_late_ = is_late_ || is_inside;
    readiness_.note(bucket, segment);
    launch_ready();
  }
}

// All hooks of a pass that is compiled would be left out.
void GradientAllreduce::refuse_compiled() {
  const std::string reason = fmt::format(
      "{}: expected a backward pass of autograd's engine, found compiled autograd, which leaves out "
      "the hooks that average gradients: leave it away, or choose an algorithm that averages "
      "parameters",
      where_);
  forget_lost_step();
  if (communicates_) {
    enter_round({});
  }
  fail_pass(reason);
  throw UnsupportedError(reason);
}

void GradientAllreduce::fail_pass(std::string_view reason) {
  has_failed_in_pass_ = true;
  fail_round(reason);
}

// A parameter without a gradient here counts as zeros; the flags say which have one.
void GradientAllreduce::fill_missing(std::size_t bucket) {
  const torch::NoGradGuard no_grad;
  Bucket& b = buckets_[bucket];
  std::vector<std::uint8_t>& flags = own_flags_[bucket];
  for (std::size_t i = 0; i < b.segments().size(); ++i) {
    if (!b.segments()[i].parameter.grad().defined()) {
      b.gradient(i).zero_();
      flags[i] = 0;
    } else {
      place_gradient(b, i, where_);
      // Zeros that no pass has added to are what is left of a clearing; other values count, whoever
      // has set them.
      flags[i] = has_gradient_[bucket][i] != 0 || b.gradient(i).any().item<bool>() ? 1 : 0;
    }
  }
  b.set_flags(flags);
}

void GradientAllreduce::launch(std::size_t bucket) {
  fill_missing(bucket);
  means_->prepare(bucket, own_flags_[bucket]);
  ++launched_;
  works_[bucket] = means_->send(bucket);
}

// The last bucket leaves at the end of the pass, so that ranks hear of an error before it. After a
// pass inside of this one no gradient is known to be whole.
void GradientAllreduce::launch_ready() {
  while (!is_late_ && launched_ + 1 < buckets_.size() && readiness_.is_whole(launched_)) {
    launch(launched_);
  }
}

void GradientAllreduce::finish_round() {
  if (phase_ != Phase::Backward) {
    return;
  }
  try {
    while (launched_ < buckets_.size()) {
      launch(launched_);
    }
  } catch (const std::exception& error) {
    fail_round(error.what());
    throw;
  }
  phase_ = Phase::Idle;
  try {
    wait_all(works_);
  } catch (const std::exception& error) {
    refuse_calls(context_, means_->later_calls(), error.what());
    means_->forget();
    note_failed_round();
    throw;
  }
  try {
    means_->finish();
  } catch (...) {
    means_->forget();
    note_failed_round();
    throw;
  }
  apply_flags();
  phase_ = Phase::Reduced;
}

// Peers issue one call for each bucket of this round, and later ones: those that this rank will not
// make.
void GradientAllreduce::fail_round(std::string_view reason) {
  if (phase_ == Phase::Backward) {
    refuse_calls(context_, calls_due(), reason);
    launched_ = buckets_.size();
    phase_ = Phase::Idle;
    end_all(works_);  // or their means would come into the gradients of a later pass
    means_->forget();
    note_failed_round();
  }
}

// A flag that this rank has set is set: what others have matters where it lacks a gradient.
void GradientAllreduce::apply_flags() {
  without_gradient_.clear();
  std::vector<const Bucket*> incomplete;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (!std::ranges::all_of(own_flags_[b], [](auto flag) { return flag != 0; })) {
      incomplete.push_back(&buckets_[b]);
    }
  }
  const auto flags = flags_of(incomplete);
  for (std::size_t b = 0; b < incomplete.size(); ++b) {
    for (std::size_t i = 0; i < flags[b].size(); ++i) {
      at::Tensor& gradient = incomplete[b]->segments()[i].parameter.mutable_grad();
      if (flags[b][i] == 0) {
        gradient.reset();
        without_gradient_.push_back(&incomplete[b]->segments()[i]);
      } else if (!gradient.defined()) {
        gradient = incomplete[b]->gradient(i);
      }
    }
  }
}

// The backward pass makes them; a step without one makes them itself.
std::size_t GradientAllreduce::calls_due() const {
  switch (phase_) {
    case Phase::Idle:
      return buckets_.size() + means_->later_calls();
    case Phase::Backward:
      return buckets_.size() - launched_ + means_->later_calls();
    case Phase::Reduced:
      return 0;
  }
  return 0;
}

void GradientAllreduce::step(const Round& /*round*/, const StepBucket& step_bucket) {
  if (phase_ == Phase::Idle) {
    // No backward pass here: this rank contributes what gradients there are.
    launched_ = 0;
    phase_ = Phase::Backward;
  }
  try {
    hooks_.check_in_place();
    hooks_.check_ends();
    check_none_given_late();
  } catch (const StateError& error) {
    fail_round(error.what());
    throw StateError(fmt::format("{}, {}", where_, error.what()));
  }
  finish_round();
  phase_ = Phase::Idle;
  for (const Bucket& bucket : buckets_) {
    step_bucket(bucket);
  }
}

void GradientAllreduce::check_none_given_late() const {
  if (phase_ != Phase::Reduced) {
    return;
  }
  for (const Segment* const segment : without_gradient_) {
    if (segment->parameter.grad().defined()) {
      throw StateError(fmt::format(
          "parameter '{}': expected gradients that are there when the backward pass ends, since that "
          "averages them, found one set behind it, which is this rank's own: set it before the pass",
          segment->name));
    }
  }
}

void GradientAllreduce::step_alone(const StepBucket& /*step_bucket*/) {}

void GradientAllreduce::drain() {
  if (phase_ == Phase::Backward) {
    finish_round();
  }
}

void GradientAllreduce::forget_round() {
  if (phase_ != Phase::Backward) {
    return;  // the means of a whole round stay
  }
  phase_ = Phase::Idle;
  end_all(works_);
  means_->forget();
}

// To none: what autograd then makes anew is copied into the bucket while it is still in the cache,
// which costs less than zeros there to add to.
bool GradientAllreduce::zero_gradients(bool set_to_none) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    std::ranges::fill(has_gradient_[b], 0);
    if (!set_to_none) {
      buckets_[b].zero_gradients();
    }
    for (std::size_t i = 0; i < buckets_[b].segments().size(); ++i) {
      at::Tensor& gradient = buckets_[b].segments()[i].parameter.mutable_grad();
      // One that lies elsewhere is of a backward pass before the optimizer was wrapped.
      if (gradient.defined() && (set_to_none || !is_placed(buckets_[b], i))) {
        gradient.reset();
      }
    }
  }
  return true;
}

namespace {

/// Empty where the options go together.
std::string why_no_gradient_code(const DistributedOptimizerOptions& options) {
  const bool is_low = number_of(options, "low_rank") > 0.0;
  if (options.compression && is_low) {
    return fmt::format("low_rank: expected a compression or a low rank, found both, {} and {}",
                       options.compression->name(), number_of(options, "low_rank"));
  }
  if (!options.compression && !is_low && options.numbers.contains("error_feedback")) {
    return "error_feedback: expected a compression or a low_rank, whose errors they are, found "
           "neither";
  }
  return {};
}

}  // namespace

AlgorithmRow gradient_allreduce_row() {
  return {
      .name = "gradient_allreduce",
      .equation = "g ← mean(g); x ← x − γ d(g)",
      .description = "The mean of all ranks' gradients, then the local step: parallel SGD.",
      .source = "Horovod; DDP, arXiv 2006.15704; BlueFog",
      .overlap = "the backward pass",
      .memory = {.note = "gradients move into flat buckets; with a code 1 for what it leaves",
                 .carried = "with a code what it has left out"},
      .options = {{.name = "compression",
                   .default_value = "none",
                   .meaning = "C of gradients; a name of `ops::compression_named`",
                   .is_field = true},
                  {.name = "low_rank",
                   .default_value = std::int64_t{0},
                   .meaning = "r: means of matrices are of rank r (PowerSGD, arXiv 1905.13727); "
                              "0: they are not",
                   .least = 0.0,
                   .below = 1025.0},
                  {.name = "error_feedback",
                   .default_value = true,
                   .meaning = "what a code or a low rank leaves out comes with the next one"}},
      .mixing = {.stochastic = Stochastic::Any, .note = "none: averages over all ranks"},
      .begins_in_backward = true,
      .sums_gradients = true,
      .counts_passes = true,
      .why_unfit_schedule =
          [](const DistributedOptimizerOptions& options, const Schedule& /*schedule*/) {
            return why_no_gradient_code(options);
          },
      .make =
          [](AlgorithmParts parts) {
            return std::make_unique<GradientAllreduce>(
                parts.context, parts.buckets, parts.options.rethrow_in_backward,
                GradientCode{.compression = parts.options.compression,
                             .low_rank = static_cast<std::int64_t>(parts.number("low_rank")),
                             .has_error_feedback = parts.number("error_feedback") != 0.0});
          }};
}

}  // namespace bluefog::optimizers
