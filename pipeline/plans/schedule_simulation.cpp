#include "pipeline/schedule_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {
namespace {

/// A message on its way, by its reader: stage, whether it is a gradient, micro-batch.
using Letterbox = std::map<std::tuple<std::size_t, bool, int>, double>;

class Simulation {
 public:
  Simulation(std::span<const std::vector<Action>> actions, std::span<const StageTimes> times,
             double message)
      : actions_(actions), times_(times), message_(message), clocks_(actions.size()) {
    result_.stages.resize(actions.size());
    result_.kept.resize(actions.size());
  }

  SimulatedSchedule run() {
    while (std::ranges::any_of(stages(), [this](std::size_t stage) { return advance(stage); })) {
    }
    check_end();
    double busy = 0;
    for (const std::size_t stage : stages()) {
      result_.makespan = std::max(result_.makespan, clocks_[stage]);
      for (const TimedAction& timed : result_.stages[stage]) {
        busy += timed.end - timed.begin;
      }
      count_kept(stage);
    }
    const double available = result_.makespan * static_cast<double>(actions_.size());
    result_.bubble = available > 0 ? 1 - busy / available : 0;
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::vector<std::size_t> stages() const {
    std::vector<std::size_t> all(actions_.size());
    for (std::size_t stage = 0; stage < all.size(); ++stage) {
      all[stage] = stage;
    }
    return all;
  }

  /// Does what the stage can do now. @return whether that was anything.
  bool advance(std::size_t stage) {
    bool moved = false;
    while (result_.stages[stage].size() < actions_[stage].size() &&
           run_action(stage, actions_[stage][result_.stages[stage].size()])) {
      moved = true;
    }
    return moved;
  }

  bool run_action(std::size_t stage, const Action& action) {
    double& clock = clocks_[stage];
    double duration = 0;
    switch (action.kind) {
      case ActionKind::ReceiveActivation:
      case ActionKind::ReceiveGradient: {
        const auto found =
            letters_.find({stage, action.kind == ActionKind::ReceiveGradient, action.micro_batch});
        if (found == letters_.end()) {
          return false;
        }
        clock = std::max(clock, found->second);
        letters_.erase(found);
        break;
      }
      case ActionKind::SendActivation:
        letters_[{stage + 1, false, action.micro_batch}] = clock + message_;
        break;
      case ActionKind::SendGradient:
        letters_[{stage - 1, true, action.micro_batch}] = clock + message_;
        break;
      case ActionKind::Forward:
        duration = times_[stage].forward;
        break;
      case ActionKind::Backward:
        duration = times_[stage].backward;
        break;
    }
    result_.stages[stage].push_back({.action = action, .begin = clock, .end = clock + duration});
    clock += duration;
    return true;
  }

  void check_end() const {
    for (const std::size_t stage : stages()) {
      const std::size_t done = result_.stages[stage].size();
      if (done < actions_[stage].size()) {
        throw InvalidArgument(
            fmt::format("pipeline schedule: expected that every action comes to its end, found "
                        "stage {} waiting for ever in '{}'",
                        stage, describe(actions_[stage][done])));
      }
    }
    if (!letters_.empty()) {
      const auto& [stage, is_gradient, micro_batch] = letters_.begin()->first;
      throw InvalidArgument(fmt::format(
          "pipeline schedule: expected that every message is received, found {} {} that "
          "stage {} never takes",
          is_gradient ? "gradient" : "activation", micro_batch, stage));
    }
  }

  void count_kept(std::size_t stage) {
    const auto is_backward = [](const Action& action) {
      return action.kind == ActionKind::Backward;
    };
    if (std::ranges::none_of(actions_[stage], is_backward)) {
      return;
    }
    int kept = 0;
    for (const Action& action : actions_[stage]) {
      kept += action.kind == ActionKind::Forward ? 1 : 0;
      result_.kept[stage] = std::max(result_.kept[stage], kept);
      kept -= is_backward(action) ? 1 : 0;
    }
  }

  std::span<const std::vector<Action>> actions_;
  std::span<const StageTimes> times_;
  double message_;
  std::vector<double> clocks_;
  Letterbox letters_;
  SimulatedSchedule result_;
};

}  // namespace

SimulatedSchedule simulate(std::span<const std::vector<Action>> actions,
                           std::span<const StageTimes> times, double message) {
  const bool is_negative = message < 0 || std::ranges::any_of(times, [](const StageTimes& one) {
                             return one.forward < 0 || one.backward < 0;
                           });
  if (actions.empty() || actions.size() != times.size() || is_negative) {
    throw InvalidArgument(fmt::format(
        "pipeline schedule: expected the actions of at least 1 stage, and times of 0 or "
        "more of each, found {} stages and {} times",
        actions.size(), times.size()));
  }
  return Simulation(actions, times, message).run();
}

}  // namespace bluefog::pipeline
