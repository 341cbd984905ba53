// How a rank leaves the others, who hear of it and go on.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/barrier.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "optimizers/wrapper/training.hpp"

namespace bluefog::optimizers {
namespace {

bool are_finite(const NamedTensors& tensors) {
  return std::ranges::all_of(tensors, [](const auto& named) {
    const at::Tensor& tensor = named.tensor;
    return !tensor.is_floating_point() || at::isfinite(tensor).all().template item<bool>();
  });
}

std::string reason_or_none(std::string_view why) {
  return std::string(why.empty() ? "no reason is given" : why);
}

}  // namespace

bool DistributedOptimizer::Training::hears_of_loss(int rank) const {
  constexpr std::chrono::seconds kLongest(1);
  const Deadline end = Deadline::after(kLongest);
  Engine& engine = context_->core().engine();
  const bool is_named = rank >= 0 && rank < context_->size() && rank != context_->rank();
  while (!engine.is_revoked() && !(is_named && engine.cause_of_death(rank))) {
    if (end.expired()) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void DistributedOptimizer::Training::leave() {
  leaves_ = true;
  ask_to_leave();
}

void DistributedOptimizer::Training::share_before_departure() {
  const AlgorithmRow& row = row_of(options_.algorithm);
  if (!row.sums_gradients && options_.algorithm != AlgorithmName::None) {
    average_floating(*context_, parameters_, "leave");
  }
  // The end of the one that leaves may interrupt calls that others are still in.
  try {
    ops::barrier(*context_);
  } catch (const RankLostError&) {
    // Another one has passed it, so that all have the mean, and goes on without this rank, which has
    // said that it is at its end.
    if (why_it_gives_up_.empty()) {
      throw;
    }
  }
}

void DistributedOptimizer::Training::end(std::string why) {
  counts_ = state().counts();
  state_.reset();
  end_ = std::move(why);
  context_->close();
}

bool DistributedOptimizer::Training::begin_to_give_up(std::string_view why) {
  const torch::NoGradGuard no_grad;
  State& own = state();
  // The others are to know before a message comes that is not of their call: it may come another way.
  constexpr std::chrono::milliseconds kUnderWay(20);
  why_it_gives_up_ = reason_or_none(why);
  StepMeeting::give_up(*context_, why_it_gives_up_);
  std::this_thread::sleep_for(kUnderWay);
  own.rest();
  return are_finite(parameters_) && are_finite(own.carried());
}

bool DistributedOptimizer::Training::give_up(std::string_view why) {
  if (has_left() || !goes_on() || context_->size() == 1 || context_->is_applicant()) {
    return has_left();
  }
  context_->log().warning(
      fmt::format("this rank's program cannot go on: {}; the others go on without it", why));
  try {
    if (is_in_step_) {
      StepMeeting::give_up(*context_, reason_or_none(why));
      context_->log().warning("it leaves at once, since its last step has failed on all ranks");
    } else if (begin_to_give_up(why)) {
      leave();
      step_until_it_has_left();
    } else {
      context_->log().warning(
          "its values are kept from the others, since not all of them are finite");
    }
  } catch (...) {
    leave_at_once();
    throw;
  }
  const bool has_left_in_order = has_left();
  leave_at_once();
  return has_left_in_order;
}

void DistributedOptimizer::Training::step_until_it_has_left() {
  constexpr std::chrono::seconds kLongest(600);
  constexpr std::chrono::nanoseconds kLongestWhereNobodyWaits = std::chrono::seconds(30);
  constexpr std::chrono::milliseconds kBetweenStepsOfItsOwn(1);
  const auto timeout = context_->settings().timeout;
  const auto longest = timeout.count() == 0 ? kLongest : timeout;
  // Others that wait for it in another call hear of it then.
  const Deadline end =
      Deadline::after(waits_for_nobody() ? std::min(kLongestWhereNobodyWaits, longest) : longest);
  while (!has_left() && !end.expired()) {
    if (waits_for_nobody()) {
      std::this_thread::sleep_for(kBetweenStepsOfItsOwn);
    }
    optimizer_.zero_grad(/*set_to_none=*/true);  // the mean of the step before is no gradient
    begin_step();
    state().step();
    end_step();
  }
}

// Calls in flight end with the context: nothing waits for the others any more.
void DistributedOptimizer::Training::leave_at_once() {
  if (state_) {
    leaves_ = false;
    context_->close();
    end("this rank's program could not go on");
  }
}

}  // namespace bluefog::optimizers
