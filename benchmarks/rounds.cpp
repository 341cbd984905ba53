#include "benchmarks/rounds.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>

#include "ops/calls/allgather_parts.hpp"

namespace bluefog::benchmarks {

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - static_cast<double>(below));
}

std::vector<double> slowest(Context& context, const std::vector<double>& own) {
  std::vector<double> worst = own;
  for (const std::vector<double>& theirs : ops::allgather_parts(context, "benchmark", own)) {
    for (std::size_t i = 0; i < worst.size(); ++i) {
      worst[i] = std::max(worst[i], theirs[i]);
    }
  }
  return worst;
}

double process_cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

int run_program(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace bluefog::benchmarks
