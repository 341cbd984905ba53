#include "optimizers/wrapper/distributed_optimizer_state.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/registry/algorithm_choice.hpp"
#include "optimizers/buckets/bucket_memory.hpp"
#include "optimizers/checks/model_statement.hpp"
#include "optimizers/round_calls.hpp"
#include "optimizers/wrapper/closure_refusal.hpp"
#include "optimizers/wrapper/model_agreement.hpp"
#include "optimizers/wrapper/saved_optimizer.hpp"
#include "optimizers/wrapper/states/moments.hpp"

namespace bluefog::optimizers {
namespace {

std::shared_ptr<Context> required(std::shared_ptr<Context> context) {
  if (!context) {
    throw InvalidArgument("DistributedOptimizer: expected a context, found a null pointer");
  }
  return context;
}

}  // namespace

DistributedOptimizer::State::State(std::shared_ptr<Context> context,
                                   torch::optim::Optimizer& optimizer, NamedTensors parameters,
                                   const DistributedOptimizerOptions& options, NamedTensors buffers)
    : context_(required(std::move(context))),
      optimizer_(optimizer),
      options_(options),
      buffers_(*context_, std::move(buffers), options.buffers),
      counts_(options.num_steps_per_communication) {
  AgreedModel model =
      agree_on_model(*context_, optimizer, without_repeats(std::move(parameters)), options);
  parameters_.emplace(context_->rank(), context_->log(), row_of(options.algorithm),
                      make_buckets(model.parameters.trained, model.bucket_bytes.others,
                                   model.bucket_bytes.first, bucket_memory(*context_)),
                      std::move(model.parameters.frozen));
  std::vector<Bucket>& buckets = parameters_->buckets();
  local_step_.emplace(optimizer, buckets, options.stepping, options.evaluation());
  step_bucket_ = [this](const Bucket& bucket) {
    note_stepped(bucket);
    if (!rests_) {
      (*local_step_)(bucket);
    }
    parameters_->take_back_stepped(bucket);
  };
  if (!options_.learning_rate) {
    options_.learning_rate = [&optimizer] {
      return optimizer.param_groups().front().options().get_lr();
    };
  }
  options_.moments = moments_of(options, optimizer);
  for (const ChosenNumber& number : model.chosen) {
    options_.numbers[number.option] = number.value;
  }
  algorithm_ = make_algorithm(
      options_, *context_, buckets,
      {.begin = [this] { return begin_in_backward(); }, .step_bucket = step_bucket_});
  const AlgorithmRow& row = row_of(options.algorithm);
  if (algorithm_->averages_with_neighbors() && !options.plans) {
    options_.schedule = mixing_of(options, context_->size());
    const bool has_more = options_.schedule->period_steps() > compared_rounds(*options_.schedule);
    if (has_more && !row.uses_windows) {
      later_rounds_.emplace(*context_, *options_.schedule);
    }
  }
  plans_.emplace(*context_, options_, *algorithm_);
  if (!is_built_in(row)) {
    late_errors_.emplace(*context_, row.name);
  }
  algorithm_->when_round_fails([this] {
    if (!is_stepping_) {
      const std::size_t others = buffers_.calls_due() + (compares_before(counts_.rounds()) ? 1 : 0);
      refuse_calls(*context_, others, "a round that has failed in its backward pass");
      pass_over_comparison();
      end_step();
    }
  });
  expect_next();
}

DistributedOptimizer::State::~State() {
  try {
    algorithm_->drain();
  } catch (const std::exception& error) {
    log_end(error);
  }
}

void DistributedOptimizer::State::log_end(const std::exception& error) const noexcept {
  try {
    // A program may end without `finish`; its parameters then lack the last average. Where a rank
    // is lost, it makes them anew.
    Engine& engine = context_->core().engine();
    const bool has_left = engine.is_closed() || engine.is_revoked();
    const std::string text =
        fmt::format("a distributed optimizer ended with work in flight: {}", error.what());
    has_left ? context_->log().info(text) : context_->log().error(text);
  } catch (const std::exception&) {  // out of memory: nothing is said
  }
}

void DistributedOptimizer::State::check_before_step() {
  parameters_->check_frozen();
  try {
    local_step_->check_unchanged();
  } catch (const StateError& error) {
    throw StateError(fmt::format("rank {}: {}", context_->rank(), error.what()));
  }
  parameters_->check_values();
  parameters_->take_back(*algorithm_);
}

// Null if parameters have to be taken back first, which a pass that uses them would not survive.
const Round* DistributedOptimizer::State::begin_in_backward() {
  if (plans_->averaging() == Averaging::Nobody || !parameters_->are_bound() || has_refused_next() ||
      compares_before(counts_.rounds())) {
    return nullptr;
  }
  check_before_step();
  begun_round_ = plans_->next(counts_.rounds());
  return &*begun_round_;
}

// A step counts on every rank whether or not it fails: some ranks may not hear of a failure, and
// all go on with the same round.
void DistributedOptimizer::State::step() {
  if (passed_over_ > 0) {
    --passed_over_;
    expect_next();
    return;
  }
  if (algorithm_->has_lost_step()) {
    algorithm_->forget_lost_step();
    context_->core().engine().check_revoked(fmt::format("step {}", counts_.steps()));
    throw StateError(fmt::format(
        "rank {}, step: expected a backward pass since the one that failed, and this step with it on "
        "all ranks; found none",
        context_->rank()));
  }
  is_stepping_ = true;
  try {
    take_step();
  } catch (...) {
    end_step();
    algorithm_->forget_lost_step();
    throw;
  }
  end_step();
}

void DistributedOptimizer::State::note_stepped(const Bucket& bucket) {
  const std::ptrdiff_t index = &bucket - buckets().data();
  if (index != static_cast<std::ptrdiff_t>(stepped_buckets_)) {
    throw StateError(fmt::format(
        "rank {}, step: expected {} to step each of its {} buckets once, in their order, found "
        "bucket {} after {} of them",
        context_->rank(), name_of(options_.algorithm), buckets().size(), index, stepped_buckets_));
  }
  ++stepped_buckets_;
}

// Between the rounds of gradient all-reduce gradients add up.
void DistributedOptimizer::State::check_stepped(bool communicates) const {
  const bool adds_up = row_of(options_.algorithm).sums_gradients && !communicates;
  if (stepped_buckets_ != buckets().size() && !adds_up) {
    throw StateError(fmt::format(
        "rank {}, step: expected {} to step each of its {} buckets, found that it has stepped {}",
        context_->rank(), name_of(options_.algorithm), buckets().size(), stepped_buckets_));
  }
}

void DistributedOptimizer::State::expect_next() {
  algorithm_->expect(communicates_next() && !has_refused_next());
}

void DistributedOptimizer::State::note_error(std::string_view method) noexcept {
  if (late_errors_) {
    const bool is_in_round = is_stepping_ && counts_.communicates_next();
    late_errors_->note(method, calls_of(counts_.rounds() + (is_in_round ? 1 : 0)));
  }
}

void DistributedOptimizer::State::end_step() {
  is_stepping_ = false;
  stepped_buckets_ = 0;
  begun_round_.reset();
  counts_.count_step();
  expect_next();
  parameters_->note_values();
}

void DistributedOptimizer::State::pass_over(std::int64_t count) {
  if (count < 0) {
    throw InvalidArgument(
        fmt::format("rank {}, pass_over: expected 0 or more, found {}", context_->rank(), count));
  }
  passed_over_ += count;
  expect_next();
}

void DistributedOptimizer::State::refuse_step(std::string_view reason) {
  if (passed_over_ > 0) {
    --passed_over_;
    expect_next();
    return;
  }
  if (algorithm_->has_lost_step()) {
    algorithm_->forget_lost_step();  // the others have been told
    return;
  }
  refuse_calls(*context_, calls_due(), reason);
  forget_round();
  end_step();
}

void DistributedOptimizer::State::forget_round() {
  if (counts_.communicates_next()) {
    pass_over_comparison();
    if (late_errors_) {
      late_errors_->forget();
    }
  }
  algorithm_->forget_round();
}

void DistributedOptimizer::State::take_step() {
  const bool communicates = counts_.communicates_next();
  if (communicates && has_refused_next()) {
    const StateError error = late_errors_->error_of(counts_.rounds());
    forget_round();
    throw StateError(error);
  }
  const std::size_t call_count = calls_due();
  Round round;
  try {
    run_round(*context_, call_count, [&](std::size_t& issued) {
      check_before_step();
      if (communicates) {
        if (later_rounds_ && plans_->averaging() != Averaging::Nobody) {
          issued = compares_before(counts_.rounds()) ? 1 : 0;
          later_rounds_->compare(counts_.rounds());
        }
        round = begun_round_ ? *begun_round_ : plans_->next(counts_.rounds());
      }
      issued = call_count;  // from here on each part of the round accounts for its calls
    });
  } catch (...) {
    forget_round();
    throw;
  }
  begin_method();
  try {
    if (communicates) {
      const std::size_t of_buffers = buffers_.calls_due();
      run_round(*context_, of_buffers, [&](std::size_t& issued) {
        algorithm_->step(round, step_bucket_);
        issued = of_buffers;
      });
      buffers_.after_round();
    } else {
      algorithm_->step_alone(step_bucket_);
    }
    check_stepped(communicates);
  } catch (...) {
    note_error(communicates ? "step" : "step_alone");
    throw;
  }
}

at::Tensor DistributedOptimizer::State::step(const Closure& closure) {
  require_closure(closure, context_->rank(),
                  [this](std::string_view reason) { refuse_step(reason); });
  if (local_step_->needs_closure()) {
    local_step_->set_closure(closure);
    step();
    return local_step_->loss();
  }
  at::Tensor loss =
      loss_or_refusal(closure, [this, steps_before = counts_.steps()](std::string_view reason) {
        // The other ranks average in this step: they are told that this rank does not.
        if (counts_.steps() == steps_before) {
          refuse_step(reason);
        }
      });
  step();
  return loss;
}

void DistributedOptimizer::State::zero_grad(bool set_to_none) {
  forget_lost_step();
  if (!sums_gradients() && !algorithm_->zero_gradients(set_to_none)) {
    optimizer_.zero_grad(set_to_none);
  }
}

void DistributedOptimizer::State::drain() {
  const bool hold = parameters_->values_hold();
  parameters_->take_back(*algorithm_);
  algorithm_->drain();
  if (hold) {
    parameters_->note_values();
  }
}

void DistributedOptimizer::State::finish() {
  drain();
  buffers_.at_finish();
}

void DistributedOptimizer::State::save(torch::serialize::OutputArchive& archive) {
  if (sums_gradients()) {
    throw StateError(fmt::format(
        "rank {}: expected to save after a whole round of {} steps, found {} steps made; the sums "
        "of gradients would be lost",
        context_->rank(), counts_.steps_per_round(), counts_.steps()));
  }
  drain();
  save_optimizer(archive, name_of(options_.algorithm), optimizer_, counts_, algorithm_->state());
  save_place(archive, context_->rank(), context_->size());
}

void DistributedOptimizer::State::check_saved(torch::serialize::InputArchive& archive) const {
  const SavedOptimizer saved(archive, context_->rank());
  saved.check_fits(name_of(options_.algorithm), optimizer_);
  saved.check_is_own(row_of(options_.algorithm).memory.conserved, context_->size());
}

void DistributedOptimizer::State::load(torch::serialize::InputArchive& archive) {
  SavedOptimizer saved(archive, context_->rank());
  saved.check_fits(name_of(options_.algorithm), optimizer_);
  saved.check_is_own(row_of(options_.algorithm).memory.conserved, context_->size());
  const NamedTensors carried = saved.algorithm_state(algorithm_->state());
  check_carried(carried);  // before the wrapped optimizer has changed
  saved.load_wrapped(optimizer_);
  resume(carried, saved.step_count(), saved.round_count());
}

void DistributedOptimizer::State::resume(const NamedTensors& carried, std::int64_t step_count,
                                         std::int64_t round_count) {
  if (step_count < 0 || round_count < 0) {
    throw InvalidArgument(
        fmt::format("rank {}: expected saved counts of 0 or more, found {} steps and {} rounds",
                    context_->rank(), step_count, round_count));
  }
  const NamedTensors state = algorithm_->state();
  check_state(carried, state);
  parameters_->take_back(*algorithm_);
  algorithm_->discard();
  if (late_errors_) {
    late_errors_->forget();  // ranks load after the round that has failed with it
  }
  set_state(carried, state);
  counts_.resume(step_count, round_count);
  algorithm_->resumed();
  parameters_->forget_values();
  plans_->forget();
  expect_next();
}

void DistributedOptimizer::State::skip_steps(std::int64_t count) {
  if (count < 0) {
    throw InvalidArgument(
        fmt::format("rank {}, skip_steps: expected 0 or more, found {}", context_->rank(), count));
  }
  counts_.skip(count);
  expect_next();
}

void DistributedOptimizer::State::restart() {
  if (algorithm_->has_begun_round()) {
    refuse_step(fmt::format("rank {} has called restart between a backward pass and its step",
                            context_->rank()));
  }
  parameters_->take_back(*algorithm_);
  algorithm_->discard();
  begin_method();
  try {
    algorithm_->restart();
  } catch (...) {
    note_error("restart");
    expect_next();
    throw;
  }
  parameters_->forget_values();
  plans_->forget();
}

}  // namespace bluefog::optimizers
