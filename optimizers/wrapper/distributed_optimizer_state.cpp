#include "optimizers/wrapper/distributed_optimizer_state.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/registry/algorithm_choice.hpp"
#include "optimizers/buckets/bucket_memory.hpp"
#include "optimizers/buckets/gradient_hooks.hpp"
#include "optimizers/checks/agreement.hpp"
#include "optimizers/checks/model_check.hpp"
#include "optimizers/checks/model_statement.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {
namespace {

/// Buckets are small in a backward pass: some must leave early, and the last one, which nothing
/// hides, must be short.
constexpr std::int64_t kFirstBucketInBackward = std::int64_t{1} << 20;
constexpr std::int64_t kBucketInBackward = std::int64_t{4} << 20;

struct BucketSizes {
  std::int64_t first = 0;
  std::int64_t others = 0;
};

BucketSizes bucket_sizes(const DistributedOptimizerOptions& options, const Settings& settings) {
  const bool leave_in_backward = has_gradient_hooks(options);
  std::int64_t bytes = options.bucket_bytes;
  if (bytes <= 0) {
    bytes = settings.fusion_threshold_bytes;
    bytes = leave_in_backward ? std::min(bytes, kBucketInBackward) : bytes;
  }
  return {.first = leave_in_backward ? std::min(bytes, kFirstBucketInBackward) : bytes,
          .others = bytes};
}

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
      buffers_(*context_, std::move(buffers), options.buffers) {
  parameters = without_repeats(std::move(parameters));
  ModelParameters sorted = sort_parameters(parameters, optimizer);
  const BucketSizes sizes = bucket_sizes(options, context_->settings());
  Statement statement = statement_of(sorted, options, sizes.others);
  if (statement.problem.empty()) {
    statement.problem = why_invalid(options, context_->size());
  }
  if (statement.problem.empty()) {
    statement.problem = why_untrainable(parameters, sorted, optimizer);
  }
  if (statement.problem.empty()) {
    statement.problem = why_untrainable(row_of(options.algorithm), sorted.trained);
  }
  if (statement.problem.empty()) {
    statement.problem = why_elsewhere(sorted.trained, *context_);
  }
  if (statement.problem.empty()) {
    statement.problem = why_doubled_momentum(row_of(options.algorithm), optimizer);
  }
  if (statement.problem.empty()) {
    statement.problem = why_not_stepped(options, optimizer);
  }
  if (statement.problem.empty() && has_gradient_hooks(options)) {
    statement.problem = why_not_hooked(sorted.trained);
  }
  check_ranks_agree(*context_, "DistributedOptimizer", statement);
  frozen_ = std::move(sorted.frozen);
  buckets_ = make_buckets(sorted.trained, sizes.others, sizes.first, bucket_memory(*context_));
  local_step_.emplace(optimizer, buckets_, options.stepping, options.reevaluates);
  step_bucket_ = [this](const Bucket& bucket) {
    (*local_step_)(bucket);
    if (!bucket.is_bound()) {  // an optimizer may give parameters new memory
      buckets_[static_cast<std::size_t>(bucket.index())].rebind();
    }
  };
  algorithm_ = make_algorithm(
      options, *context_, buckets_,
      {.begin = [this] { return begin_in_backward(); }, .step_bucket = step_bucket_});
  if (algorithm_->averages_with_neighbors() && !options.plans) {
    options_.schedule = mixing_of(options, context_->size());
  }
  plans_.emplace(*context_, options_, *algorithm_);
  if (!row_of(options_.algorithm).bound_to_values.empty()) {
    bound_values_.emplace(buckets_);
  }
  algorithm_->when_round_fails([this] {
    if (!is_stepping_) {
      end_step();
    }
  });
  algorithm_->expect(communicates_next());
}

DistributedOptimizer::State::~State() {
  try {
    algorithm_->drain();
  } catch (const std::exception& error) {
    // A program may end without `finish`; its parameters then lack the last average.
    const bool has_left = context_->core().engine().is_closed();
    const std::string text =
        fmt::format("a distributed optimizer ended with work in flight: {}", error.what());
    has_left ? context_->log().info(text) : context_->log().error(text);
  }
}

void DistributedOptimizer::State::check_before_step() {
  for (const NamedTensor& item : frozen_) {
    if (item.tensor.requires_grad()) {
      throw StateError(fmt::format(
          "rank {}, parameter '{}': expected it to stay frozen as when the distributed optimizer was "
          "made, found it requiring gradients; make a new distributed optimizer",
          context_->rank(), item.name));
    }
  }
  try {
    local_step_->check_unchanged();
  } catch (const StateError& error) {
    throw StateError(fmt::format("rank {}: {}", context_->rank(), error.what()));
  }
  check_values_stayed();
  take_back_parameters();
}

void DistributedOptimizer::State::check_values_stayed() {
  const auto parameter = bound_values_ ? bound_values_->first_set() : std::nullopt;
  if (parameter) {
    const AlgorithmRow& row = row_of(options_.algorithm);
    throw StateError(fmt::format(
        "rank {}, {}, parameter '{}': expected the value that the last step left, to which {} "
        "belong, found another one, or memory in its place; call restart() on all ranks when "
        "parameters were set, or choose adapt_then_combine, which goes on from them",
        context_->rank(), row.name, *parameter, row.bound_to_values));
  }
}

bool DistributedOptimizer::State::is_bound() const {
  return std::ranges::all_of(buckets_, [](const Bucket& bucket) { return bucket.is_bound(); });
}

void DistributedOptimizer::State::take_back_parameters() {
  if (is_bound()) {
    return;
  }
  // Calls in flight still write into the buckets; the new values replace their results.
  algorithm_->drain();
  try {
    for (Bucket& bucket : buckets_) {
      for (const std::string& name : bucket.rebind()) {
        context_->log().debug(fmt::format(
            "parameter '{}': its memory was replaced; its value is back in its bucket", name));
      }
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("rank {}, {}", context_->rank(), error.what()));
  }
}

// Null if parameters have to be taken back first, which a pass that uses them would not survive.
const Round* DistributedOptimizer::State::begin_in_backward() {
  if (plans_->averaging() == Averaging::Nobody || !is_bound()) {
    return nullptr;
  }
  check_before_step();
  begun_round_ = plans_->next(round_count_);
  return &*begun_round_;
}

// A step counts on every rank whether or not it fails: some ranks may not hear of a failure, and
// all go on with the same round.
void DistributedOptimizer::State::step() {
  if (algorithm_->has_lost_step()) {
    algorithm_->forget_lost_step();
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

void DistributedOptimizer::State::end_step() {
  is_stepping_ = false;
  begun_round_.reset();
  round_count_ += communicates_next() ? 1 : 0;
  ++step_count_;
  algorithm_->expect(communicates_next());
  if (bound_values_) {
    bound_values_->note();
  }
}

void DistributedOptimizer::State::refuse_step(std::string_view reason) {
  if (algorithm_->has_lost_step()) {
    algorithm_->forget_lost_step();  // the others have been told
    return;
  }
  for (std::size_t due = calls_due(); due > 0; --due) {
    context_->core().engine().refuse(reason);
  }
  algorithm_->forget_round();
  end_step();
}

void DistributedOptimizer::State::take_step() {
  const bool communicates = communicates_next();
  const std::size_t call_count = calls_due();
  Round round;
  try {
    run_round(*context_, call_count, [&](std::size_t& issued) {
      check_before_step();
      if (communicates) {
        round = begun_round_ ? *begun_round_ : plans_->next(round_count_);
      }
      issued = call_count;  // from here on the algorithm accounts for its calls
    });
  } catch (...) {
    algorithm_->forget_round();
    throw;
  }
  if (communicates) {
    algorithm_->step(round, step_bucket_);
    buffers_.after_round();
  } else {
    algorithm_->step_alone(step_bucket_);
  }
}

at::Tensor DistributedOptimizer::State::step(const Closure& closure) {
  if (!closure) {
    const std::string reason = fmt::format(
        "rank {}, step: expected a closure that evaluates the model, found an empty one",
        context_->rank());
    refuse_step(reason);
    throw InvalidArgument(reason);
  }
  if (!local_step_->needs_closure()) {
    at::Tensor loss = evaluate(closure);
    step();
    return loss;
  }
  local_step_->set_closure(closure);
  step();
  return local_step_->loss();
}

at::Tensor DistributedOptimizer::State::evaluate(const Closure& closure) {
  const torch::AutoGradMode grad_mode(true);
  const std::int64_t steps_before = step_count_;
  const auto refuse = [&](std::string_view reason) {
    // The other ranks average in this step: they are told that this rank does not.
    if (step_count_ == steps_before) {
      refuse_step(reason);
    }
  };
  try {
    return closure();
  } catch (const std::exception& error) {
    refuse(error.what());
    throw;
  } catch (...) {
    refuse("an exception of an unknown type");
    throw;
  }
}

void DistributedOptimizer::State::drain() {
  const bool hold = bound_values_ && bound_values_->hold();
  take_back_parameters();
  algorithm_->drain();
  if (hold) {
    bound_values_->note();
  }
}

void DistributedOptimizer::State::skip_steps(std::int64_t count) {
  if (count < 0) {
    throw InvalidArgument(
        fmt::format("rank {}, skip_steps: expected 0 or more, found {}", context_->rank(), count));
  }
  step_count_ += count;
  algorithm_->expect(communicates_next());
}

void DistributedOptimizer::State::restart() {
  if (algorithm_->has_begun_round()) {
    refuse_step(fmt::format("rank {} has called restart between a backward pass and its step",
                            context_->rank()));
  }
  take_back_parameters();
  algorithm_->discard();
  algorithm_->restart();
  if (bound_values_) {
    bound_values_->forget();
  }
  plans_->forget();
}

}  // namespace bluefog::optimizers
