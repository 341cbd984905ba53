#pragma once

#include <chrono>
#include <vector>

#include "bluefog_cpp/context.hpp"

// Statistics of benchmarks that take turns in rounds, and how their programs end.
namespace bluefog::benchmarks {

/// The value below which a share `q` of `values` lies, interpolated between neighbours: the median
/// of two is their mean.
[[nodiscard]] double quantile(std::vector<double> values, double q);

/// The largest of the ranks' values in each round: of times, the slowest rank's. Every rank calls
/// it with as many rounds.
[[nodiscard]] std::vector<double> slowest(Context& context, const std::vector<double>& own);

template <typename Call>
[[nodiscard]] double time_us(const Call& call) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  call();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// `run(argc, argv)`; an exception is a line on standard error, after the program's name, and exit
/// code 1.
[[nodiscard]] int run_program(const char* name, int (*run)(int, char**), int argc, char** argv);

/// The time that processor cores have spent in this process, all threads together.
[[nodiscard]] double process_cpu_us();

}  // namespace bluefog::benchmarks
