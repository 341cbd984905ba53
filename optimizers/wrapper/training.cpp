#include "optimizers/wrapper/training.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/optimizer_state.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "optimizers/wrapper/common_counts.hpp"

namespace bluefog::optimizers {
namespace {

/// "2 ranks go on without rank 1 (that rank's process has ended)".
std::string description_of(const Membership& members) {
  std::vector<std::string> lost;
  for (const Membership::Loss& loss : members.lost) {
    if (loss.epoch == members.epoch) {
      lost.push_back(fmt::format("rank {} ({})", loss.rank, loss.cause));
    }
  }
  return fmt::format("{} rank{} on without {}", members.ranks.size(),
                     members.ranks.size() == 1 ? " goes" : "s go",
                     lost.empty() ? "any other one" : fmt::format("{}", fmt::join(lost, ", ")));
}

/// The numbers that the ranks of `smaller` had in `larger`.
std::vector<int> ranks_left(const Membership& larger, const Membership& smaller) {
  std::vector<int> left;
  for (std::size_t rank = 0; rank < larger.ranks.size(); ++rank) {
    if (std::ranges::binary_search(smaller.ranks, larger.ranks[rank])) {
      left.push_back(static_cast<int>(rank));
    }
  }
  return left;
}

std::vector<int> others(const std::vector<int>& ranks, int size) {
  std::vector<int> rest;
  for (int rank = 0; rank < size; ++rank) {
    if (!std::ranges::binary_search(ranks, rank)) {
      rest.push_back(rank);
    }
  }
  return rest;
}

}  // namespace

DistributedOptimizer::Training::Training(std::shared_ptr<Context> context,
                                         torch::optim::Optimizer& optimizer,
                                         NamedTensors parameters,
                                         const DistributedOptimizerOptions& options,
                                         NamedTensors buffers)
    : context_(std::move(context)),
      optimizer_(optimizer),
      parameters_(std::move(parameters)),
      options_(options),
      buffers_(std::move(buffers)),
      counts_(options.num_steps_per_communication),
      state_(std::make_unique<State>(context_, optimizer_, parameters_, options_, buffers_)) {}

DistributedOptimizer::State& DistributedOptimizer::Training::state() const {
  if (!state_) {
    throw StateError(fmt::format("this optimizer has ended: {}", end_));
  }
  return *state_;
}

const std::vector<Bucket>& DistributedOptimizer::Training::buckets() const noexcept {
  static const std::vector<Bucket> kNone;
  return state_ ? state_->buckets() : kNone;
}

void DistributedOptimizer::Training::set_averaging(Averaging averaging) {
  state().set_averaging(averaging);
  averaging_ = averaging;
}

bool DistributedOptimizer::Training::goes_on() const {
  return options_.on_failure.value_or(context_->settings().on_failure) == OnFailure::Shrink;
}

void DistributedOptimizer::Training::look_for_losses() const {
  if (goes_on() && row_of(options_.algorithm).uses_windows) {
    context_->core().engine().check_revoked("step");
  }
}

bool DistributedOptimizer::Training::hears_of_loss() const {
  constexpr std::chrono::seconds kLongest(1);
  const Deadline end = Deadline::after(kLongest);
  while (!context_->core().engine().is_revoked()) {
    if (end.expired()) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

template <typename Work>
void DistributedOptimizer::Training::survive(Work work) {
  try {
    work();
    return;
  } catch (const RankLostError&) {
    if (!goes_on()) {
      throw;
    }
  } catch (const PeerFailure&) {
    if (!goes_on() || !row_of(options_.algorithm).uses_windows || !hears_of_loss()) {
      throw;
    }
  }
  shrink();
}

void DistributedOptimizer::Training::begin_step() {
  try {
    look_for_losses();
  } catch (const RankLostError& error) {
    state().refuse_step(error.what());  // it counts, as others that are interrupted
    throw;
  }
}

void DistributedOptimizer::Training::step() {
  survive([this] {
    begin_step();
    state().step();
  });
}

at::Tensor DistributedOptimizer::Training::step(const Closure& closure) {
  at::Tensor loss;
  survive([&] {
    begin_step();
    loss = closure ? state().step([&] { return loss = closure(); }) : state().step(closure);
  });
  return loss;
}

void DistributedOptimizer::Training::drain() {
  survive([this] {
    look_for_losses();
    state().drain();
  });
}

void DistributedOptimizer::Training::finish() {
  survive([this] {
    look_for_losses();
    state().finish();
  });
}

void DistributedOptimizer::Training::shrink() {
  while (true) {
    try {
      move_to(context_->shrink());
      if (context_->rank() == 0) {
        context_->log().warning(fmt::format("shrink: {}", description_of(context_->membership())));
      }
      if (options_.when_shrunk) {
        options_.when_shrunk(context_);
      }
      return;
    } catch (const RankLostError&) {  // another one
    }
  }
}

int DistributedOptimizer::Training::move_to(std::shared_ptr<Context> smaller) {
  if (options_.plans) {
    throw UnsupportedError(fmt::format(
        "rank {}, shrink: expected a schedule, which goes on without the lost ranks, found plans "
        "that the program makes: give the optimizer a schedule, or make a new one over "
        "Context::shrink()",
        context_->rank()));
  }
  if (options_.schedule) {
    const std::vector<int> left = ranks_left(context_->membership(), smaller->membership());
    options_.schedule = options_.schedule->without(others(left, context_->size())).among(left);
  }
  context_ = std::move(smaller);
  if (state_) {
    counts_ = state_->counts();
    passed_over_ = state_->passed_over();
    state_.reset();
  }
  try {
    return make_state();
  } catch (const std::exception& error) {
    end_ = error.what();
    throw;
  }
}

int DistributedOptimizer::Training::make_state() {
  CommonCounts counts = agree_on_counts(*context_, counts_.steps(), counts_.rounds());
  if (row_of(options_.algorithm).uses_windows) {  // each rank steps as often as it likes
    counts = {.steps = counts_.steps(),
              .rounds = counts_.rounds(),
              .behind = 0,
              .furthest = counts.furthest};
  }
  take_common_values(counts.furthest);
  auto state = std::make_unique<State>(context_, optimizer_, parameters_, options_, buffers_);
  state->resume(state->carried(), counts.steps, counts.rounds);
  if (averaging_) {
    state->set_averaging(*averaging_);
  }
  state->pass_over(passed_over_ + counts.behind);
  state_ = std::move(state);
  return counts.furthest;
}

void DistributedOptimizer::Training::take_common_values(int furthest) {
  const AlgorithmRow& row = row_of(options_.algorithm);
  if (!row.sums_gradients) {
    if (options_.algorithm != AlgorithmName::None) {
      average_floating(*context_, parameters_, "shrink");
    }
    return;
  }
  broadcast(*context_, parameters_, furthest, "shrink");
  if (options_.share_state) {
    options_.share_state(*context_, furthest);
    return;
  }
  try {
    broadcast_optimizer_state(*context_, optimizer_, furthest);
  } catch (const UnsupportedError& error) {
    if (context_->rank() == 0) {
      context_->log().warning(
          fmt::format("shrink: ranks that were a step behind keep their optimizer's own state: {}",
                      error.what()));
    }
  }
}

}  // namespace bluefog::optimizers
