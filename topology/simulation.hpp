#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "topology/ceca.hpp"
#include "topology/schedule.hpp"
#include "topology/step_cost.hpp"

namespace bluefog::topology {

/// The length, first values and network of a simulation.
struct SimulationOptions {
  /// Averaging steps, at least 0.
  std::int64_t steps = 100;
  /// Seed of the first values.
  std::uint64_t seed = 1;
  CostModel cost = {};  ///< the network whose times `SimulatedStep::elapsed` adds up
  /// Called after each step with the number of steps done; may be empty.
  std::function<void(std::int64_t done)> on_step = {};
};

/// State of the ranks after a step.
struct SimulatedStep {
  /// ‖x − Jx‖ = √(Σ_i (x_i − x̄)²).
  double consensus_distance = 0.0;
  /// Time since the start, by the cost model.
  Seconds elapsed{0.0};
  /// Messages of this step, from rank to rank.
  std::int64_t messages = 0;
};

/// The course of a simulation.
struct Simulation {
  double initial_distance = 0.0;     ///< ‖x − Jx‖ of the first values
  std::vector<SimulatedStep> steps;  ///< the state after each step, in order
  /// |x̄ − x̄(0)| at the end: 0 up to rounding where the mean is kept.
  double mean_drift = 0.0;
};

/// Averages one number per rank, drawn evenly from −1 … 1 by `seed`, step by step; a hundred
/// thousand ranks take some milliseconds a step. One thread.
/// @throws InvalidArgument if `steps` < 0, if the values overflow, or for the cost model as
///   `step_time`.
[[nodiscard]] Simulation simulate(const Schedule& schedule, const SimulationOptions& options);

/// The same for CECA; x is d.
[[nodiscard]] Simulation simulate(const Ceca& ceca, const SimulationOptions& options);

}  // namespace bluefog::topology
