#pragma once

#include <chrono>
#include <vector>

#include "benchmarks/operations/contestant.hpp"

namespace bluefog::benchmarks {

/// The times of a call, of the slowest rank in each round.
struct Measurement {
  const Contestant* contestant = nullptr;
  double median_us = 0;
  double p95_us = 0;
  double cpu_us = 0;  ///< of all threads of the rank with most
};

/// Collective. Has the contestants take turns for about `seconds`, and rests for `pause` before each
/// timed batch of calls. Results refer to `contestants`.
[[nodiscard]] std::vector<Measurement> measure(const Setting& setting,
                                               const std::vector<Contestant>& contestants,
                                               double seconds, std::chrono::duration<double> pause);

}  // namespace bluefog::benchmarks
