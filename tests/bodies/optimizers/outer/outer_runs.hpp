#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/bodies/optimizers/support.hpp"

namespace bluefog::testing {

constexpr double kOuterRate = 0.05;
/// Steps between outer ones, and outer steps.
constexpr int kInner = 3;
constexpr int kOuter = 5;

using Numbers = std::map<std::string, double, std::less<>>;

inline optimizers::DistributedOptimizerOptions outer_options(
    optimizers::AlgorithmName algorithm, Numbers numbers = {},
    std::optional<Schedule> schedule = std::nullopt) {
  optimizers::DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.schedule = std::move(schedule);
  options.numbers = std::move(numbers);
  options.num_steps_per_communication = kInner;
  options.bucket_bytes = 32;
  return options;
}

/// No more ranks and no fewer.
inline Ranks exactly(int ranks) {
  return {
      .at_least = ranks, .at_most = ranks, .thread_counts = {ranks}, .layouts = {Layout::OneHost}};
}

inline Ranks ranks_of_outer_steps() { return {.at_most = 4, .layouts = {Layout::OneHost}}; }

inline std::vector<at::Tensor> run_outer_steps(
    Context& context, const optimizers::DistributedOptimizerOptions& options,
    Start start = Start::Different, int steps = kInner * kOuter, double rate = kOuterRate) {
  return points_of_run(context, options, start, steps, rate);
}

/// v, and the next θ by it.
struct OuterMomentumOfAll {
  double beta = 0.0;
  bool is_nesterov = false;
  at::Tensor v{};

  at::Tensor next(const at::Tensor& theta, const at::Tensor& g) {
    v = v.defined() ? beta * v + g : g;
    return theta - (is_nesterov ? g + beta * v : v);
  }
};

}  // namespace bluefog::testing
