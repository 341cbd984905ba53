#include "topology/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "bluefog_cpp/error.hpp"
#include "topology/graphs/seeded_draws.hpp"
#include "topology/step_traffic.hpp"

namespace bluefog::topology {
namespace {

std::vector<double> first_values(int size, std::uint64_t seed) {
  constexpr double kUlp = 0x1p-52;
  std::mt19937_64 generator = detail::generator_of(seed, 0);
  std::vector<double> values(size);
  for (double& value : values) {
    value = static_cast<double>(generator() >> 11U) * kUlp - 1.0;
  }
  return values;
}

double average_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double distance_of(std::span<const double> values) {
  const double mean = average_of(values);
  double sum = 0.0;
  for (const double value : values) {
    sum += (value - mean) * (value - mean);
  }
  return std::sqrt(sum);
}

void check_finite(double distance, std::int64_t step) {
  if (!std::isfinite(distance)) {
    throw InvalidArgument(fmt::format(
        "simulation: expected finite values, found that they have overflowed after step "
        "{}: weights or sums of rows are too large",
        step));
  }
}

/// Messages of a step, and the most that one rank has to do with.
struct Load {
  std::int64_t messages;
  int degree;
};

/// @param step Puts the values through step t and says what that took.
template <typename Step>
Simulation run_steps(int size, const SimulationOptions& options, Step step) {
  if (options.steps < 0) {
    throw InvalidArgument(fmt::format("simulation: {} steps, expected at least 0", options.steps));
  }
  std::vector<double> values = first_values(size, options.seed);
  const double first_mean = average_of(values);
  Simulation result;
  result.initial_distance = distance_of(values);
  Seconds elapsed{0.0};
  for (std::int64_t t = 0; t < options.steps; ++t) {
    const Load load = step(t, values);
    elapsed += step_time(load.degree, options.cost);
    result.steps.push_back({distance_of(values), elapsed, load.messages});
    check_finite(result.steps.back().consensus_distance, t);
    if (options.on_step) {
      options.on_step(t + 1);
    }
  }
  result.mean_drift = std::abs(average_of(values) - first_mean);
  return result;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const SimulationOptions& options) {
  std::vector<double> next(schedule.size());
  return run_steps(schedule.size(), options, [&](std::int64_t t, std::vector<double>& values) {
    const MixingMatrix matrix = schedule.mixing_matrix(t);
    matrix.apply(values, next);
    values.swap(next);
    const detail::StepTraffic traffic = detail::traffic_of(matrix);
    return Load{traffic.messages, std::max(traffic.max_in_degree, traffic.max_out_degree)};
  });
}

Simulation simulate(const Ceca& ceca, const SimulationOptions& options) {
  std::vector<double> without_own(ceca.size(), 0.0);
  return run_steps(ceca.size(), options, [&](std::int64_t t, std::vector<double>& values) {
    if (ceca.steps().empty()) {
      return Load{0, 0};
    }
    ceca.apply(static_cast<int>(t % std::ssize(ceca.steps())), values, without_own);
    return Load{ceca.size(), 1};
  });
}

}  // namespace bluefog::topology
