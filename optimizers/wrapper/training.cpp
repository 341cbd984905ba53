#include "optimizers/wrapper/training.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/exit_note.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/optimizer_state.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "optimizers/wrapper/common_counts.hpp"
#include "optimizers/wrapper/model_agreement.hpp"

namespace bluefog::optimizers {
namespace {

/// "2 ranks go on without rank 1 (that rank's process has ended)".
std::string description_of(const Membership& members) {
  const auto joined = std::ranges::count(members.joined, members.epoch, &Membership::Entry::epoch);
  std::vector<std::string> lost;
  for (const Membership::Loss& loss : members.lost) {
    if (loss.epoch == members.epoch) {
      lost.push_back(fmt::format("rank {} ({})", loss.rank, loss.cause));
    }
  }
  std::string text = fmt::format("{} rank{} on", members.ranks.size(),
                                 members.ranks.size() == 1 ? " goes" : "s go");
  if (!lost.empty() || joined == 0) {
    text += fmt::format(" without {}", lost.empty() ? std::string("any other one")
                                                    : fmt::format("{}", fmt::join(lost, ", ")));
  }
  return joined == 0
             ? text
             : text +
                   fmt::format(", {} of them new: rank{} {}", joined, joined == 1 ? "" : "s",
                               fmt::join(members.ranks.end() - joined, members.ranks.end(), ", "));
}

/// The places of the ranks `now` among those `before`, by their numbers in the launch.
std::vector<int> ranks_left(const std::vector<int>& before, const std::vector<int>& now) {
  std::vector<int> left;
  for (std::size_t rank = 0; rank < before.size(); ++rank) {
    if (std::ranges::binary_search(now, before[rank])) {
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
      state_(std::make_unique<State>(context_, optimizer_, parameters_, options_, buffers_)),
      is_new_(context_->is_applicant()) {}

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

bool DistributedOptimizer::Training::waits_for_nobody() const {
  return row_of(options_.algorithm).uses_windows || options_.algorithm == AlgorithmName::None;
}

void DistributedOptimizer::Training::look_for_losses() const {
  if (goes_on() && (waits_for_nobody() || averaging_ == Averaging::Nobody)) {
    context_->core().engine().check_revoked("step");
  }
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
  } catch (const PeerFailure& failure) {
    if (!goes_on() || !hears_of_loss(failure.rank())) {
      throw;
    }
  } catch (const TimeoutError&) {  // of a window's call, which the others do not hear of
    if (!goes_on() || !row_of(options_.algorithm).uses_windows) {
      throw;
    }
  }
  shrink();
}

void DistributedOptimizer::Training::begin_step() {
  if (context_->is_applicant()) {
    throw StateError(
        "step: expected a rank, found a process that waits to join the others: have it join before "
        "its first step, by DistributedOptimizer::join(), in Python by enter()");
  }
  former_.reset();  // all that stands on the ranks has moved
  try {
    look_for_losses();
  } catch (const RankLostError& error) {
    state().refuse_step(error.what());  // it counts, as others that are interrupted
    throw;
  }
}

void DistributedOptimizer::Training::step() {
  is_in_step_ = true;
  survive([this] {
    begin_step();
    state().step();
    note_rate();
  });
  is_in_step_ = false;
  end_step();
}

void DistributedOptimizer::Training::note_rate() {
  if (rates_.is_on()) {
    rates_.note_step(*context_, counts().steps(), state().learning_rate());
  }
}

at::Tensor DistributedOptimizer::Training::step(const Closure& closure) {
  at::Tensor loss;
  is_in_step_ = true;
  survive([&] {
    begin_step();
    loss = closure ? state().step([&] { return loss = closure(); }) : state().step(closure);
    note_rate();
  });
  is_in_step_ = false;
  end_step();
  return loss;
}

void DistributedOptimizer::Training::end_step() {
  if (goes_on() && meeting_is_due()) {
    survive([this] {
      state().drain();
      const bool sees_off =
          is_departure();  // else others meet for another reason, and it leaves next
      if (sees_off) {
        share_before_departure();
      }
      if (leaves_ && sees_off) {
        end("this rank has left");
        report_departure();
      } else {
        go_on(true);
      }
    });
  }
}

bool DistributedOptimizer::Training::meeting_is_due(bool may_be_called) {
  if (may_be_called) {
    meeting_.call_if_needed(*context_, counts(), state_ && !state_->averages_with_neighbors());
  }
  return StepMeeting::is_due(*context_,
                             waits_for_nobody() ? std::nullopt : std::optional(counts().steps()));
}

void DistributedOptimizer::Training::join() {
  if (context_->is_applicant()) {
    go_on(true);
  }
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

void DistributedOptimizer::Training::go_on(bool admits) {
  while (true) {
    const bool joins = is_new_;
    try {
      move_to(admits ? context_->regroup() : context_->shrink());
    } catch (const RankLostError&) {  // another one
      continue;
    } catch (const Error& error) {
      if (joins) {
        context_->close();  // the others go on without it
      }
      if (joins || newcomers_.count == 0) {
        throw;
      }
      if (context_->rank() == 0) {
        context_->log().warning(
            fmt::format("a process that was to join is not like the others: {}", error.what()));
      }
      continue;
    }
    if (context_->rank() == 0) {
      context_->log().warning(fmt::format("shrink: {}", description_of(context_->membership())));
    }
    if (!why_it_gives_up_.empty()) {
      StepMeeting::give_up(*context_, why_it_gives_up_);
    }
    if (leaves_) {
      ask_to_leave();  // the one who was asked may be gone
    }
    try {
      if (options_.when_shrunk) {
        options_.when_shrunk(context_);
      }
      return;
    } catch (const RankLostError&) {  // in the program's own calls
    }
  }
}

int DistributedOptimizer::Training::move_to(std::shared_ptr<Context> other) {
  if (options_.plans) {
    throw UnsupportedError(fmt::format(
        "rank {}, shrink: expected a schedule, which goes on without the lost ranks, found plans "
        "that the program makes: give the optimizer a schedule, or make a new one over "
        "Context::shrink()",
        context_->rank()));
  }
  newcomers_ = {};
  if (!former_) {
    former_ = {
        .ranks = context_->membership().ranks, .schedule = options_.schedule, .growths = growths_};
  }
  context_ = std::move(other);
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

std::optional<Schedule> DistributedOptimizer::Training::schedule_now(bool has_grown) const {
  if (has_grown) {
    if (options_.make_schedule) {
      return options_.make_schedule(*context_);
    }
    if (former_->schedule && context_->rank() == 0) {
      context_->log().warning(
          "shrink: the schedule that was given does not fit ranks that are new: the default one "
          "goes on in its place");
    }
    return std::nullopt;
  }
  if (!former_->schedule) {
    return std::nullopt;
  }
  const std::vector<int> left = ranks_left(former_->ranks, context_->membership().ranks);
  const std::vector<int> lost = others(left, static_cast<int>(former_->ranks.size()));
  return former_->schedule->without(lost).among(left);
}

int DistributedOptimizer::Training::make_state() {
  const std::vector<int>& ranks = context_->membership().ranks;
  const OwnCounts own{.steps = counts_.steps(),
                      .rounds = counts_.rounds(),
                      .growths = former_->growths,
                      .has_grown = ranks_left(former_->ranks, ranks).size() < ranks.size() ? 1 : 0};
  CommonCounts counts = agree_on_counts(*context_, is_new_ ? std::nullopt : std::optional(own));
  options_.schedule = schedule_now(counts.has_grown);
  growths_ = counts.growths;
  newcomers_ = {.count = counts.newcomers, .is_one = is_new_};
  if (!waits_for_nobody()) {
    context_->core().note_first_step(counts.steps);
  }
  if (newcomers_.count > 0) {  // what follows changes something
    (void)agree_on_model(*context_, optimizer_, parameters_, options_);
    check_order(*context_, optimizer_, parameters_, options_.call_name);
  }
  if (!is_new_ && waits_for_nobody()) {
    counts.steps = counts_.steps();
    counts.rounds = counts_.rounds();
    counts.behind = 0;
  }
  take_common_values(counts.furthest);
  auto state = std::make_unique<State>(context_, optimizer_, parameters_, options_, buffers_);
  state->resume(state->carried(), counts.steps, counts.rounds);
  if (averaging_) {
    state->set_averaging(*averaging_);
  }
  if (newcomers_.count > 0 && !waits_for_nobody()) {
    rates_.begin(counts.steps, newcomers_.is_one);
  }
  state->pass_over(passed_over_ + counts.behind);
  if (!why_it_gives_up_.empty()) {
    state->rest();
  }
  state_ = std::move(state);
  end_.clear();
  is_new_ = false;
  return counts.furthest;
}

void DistributedOptimizer::Training::take_common_values(int furthest) {
  const AlgorithmRow& row = row_of(options_.algorithm);
  if (newcomers_.count > 0) {
    give_newcomers(newcomers_, *context_, parameters_, furthest, "shrink");
    give_newcomers(newcomers_, *context_, buffers_, furthest, "shrink");
  }
  if (row.sums_gradients) {
    broadcast(*context_, parameters_, furthest, "shrink");
  } else if (options_.algorithm != AlgorithmName::None) {
    average_without(newcomers_, *context_, parameters_, "shrink");
  }
  if (row.sums_gradients || newcomers_.count > 0) {
    take_state(furthest);
  }
}

void DistributedOptimizer::Training::take_state(int furthest) {
  if (options_.share_state) {
    options_.share_state(*context_, furthest);
    return;
  }
  try {
    if (row_of(options_.algorithm).sums_gradients) {
      broadcast_optimizer_state(*context_, optimizer_, furthest);
    } else {
      give_newcomers_state(newcomers_, *context_, optimizer_, furthest);
    }
  } catch (const UnsupportedError& error) {
    if (context_->rank() == 0) {
      context_->log().warning(fmt::format(
          "shrink: ranks that were a step behind, or are new, keep their optimizer's own state: {}",
          error.what()));
    }
  }
}

}  // namespace bluefog::optimizers
