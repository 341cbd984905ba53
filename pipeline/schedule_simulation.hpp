#pragma once

#include <span>
#include <vector>

#include "pipeline/stage_actions.hpp"

namespace bluefog::pipeline {

/// How long a stage computes, in any unit.
struct StageTimes {
  double forward = 1;   ///< of one micro-batch
  double backward = 2;  ///< of one micro-batch
};

/// An action with the time that it took, its wait not counted.
struct TimedAction {
  Action action;     ///< what was done
  double begin = 0;  ///< from the start of the first action
  double end = 0;    ///< the same as `begin` for messages
};

/// A simulated run of a schedule.
struct SimulatedSchedule {
  std::vector<std::vector<TimedAction>> stages;  ///< by stage, in the order of its actions
  double makespan = 0;                           ///< until the last action of all stages
  /// The share of the time in which stages do not compute: 1 − Σ compute / (K makespan). For equal
  /// stages (K − 1)/(M + K − 1).
  double bubble = 0;
  /// The most micro-batches that each stage keeps at once between forward and backward.
  std::vector<int> kept;
};

/// Runs the stages' actions in their order, each as soon as what it waits for has come. Sends do not
/// wait, as those of the runtime.
/// @param actions of each stage. @param times of each stage.
/// @param message how long a message is on its way.
/// @throws InvalidArgument for a stage without times, a negative time; and for schedules that never
///   end or leave messages untaken, naming stage and action.
[[nodiscard]] SimulatedSchedule simulate(std::span<const std::vector<Action>> actions,
                                         std::span<const StageTimes> times, double message = 0);

}  // namespace bluefog::pipeline
