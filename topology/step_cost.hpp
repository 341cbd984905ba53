#pragma once

#include <chrono>
#include <cstdint>

namespace bluefog::topology {

/// Model times, in seconds.
using Seconds = std::chrono::duration<double>;

/// The α–β model of a network: a rank sends one message at a time and hears one at a time, both at
/// once, and no rank slows another.
struct CostModel {
  /// α, the time of an empty message.
  Seconds latency{5e-6};
  /// 1/β, the bandwidth of one rank in each direction.
  double bytes_per_second = 1.25e9;
  /// Size of the message that a rank sends to each reader.
  std::int64_t message_bytes = 1'000'000;
  /// Time that a rank computes in a step before it sends.
  Seconds compute{0.0};
};

/// compute + degree · (α + β · bytes): a step in which no rank sends to, or hears, more than
/// `degree` others.
/// @throws InvalidArgument if a time or the bytes are negative, or the bandwidth is not above 0.
[[nodiscard]] Seconds step_time(int degree, const CostModel& model);

/// compute + 2 (n − 1) α + 2 (n − 1)/n · β · bytes: a ring all-reduce, for comparison.
/// Errors as `step_time`, and if `size` < 1.
[[nodiscard]] Seconds ring_allreduce_time(int size, const CostModel& model);

}  // namespace bluefog::topology
