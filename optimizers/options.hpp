#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "optimizers/buffer_policy.hpp"
#include "optimizers/local_step.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// What ranks exchange, and what the result does. Each has a class of its own, which says more.
enum class AlgorithmKind : std::uint8_t {
  /// g ← mean(g), then the local step (`GradientAllreduce`).
  GradientAllreduce,
  /// x ← W (x − γ d) (`AdaptThenCombine`).
  AdaptThenCombine,
  /// x ← W x − γ d(x) (`AdaptWithCombine`).
  AdaptWithCombine,
  /// x ← x − γ d (`NoCommunication`).
  None,
};

/// How a `DistributedOptimizer` works. The same on all ranks.
struct DistributedOptimizerOptions {
  AlgorithmKind algorithm = AlgorithmKind::AdaptThenCombine;

  /// W(t) of communication round t. Default: the static exponential graph, base 2.
  std::optional<Schedule> schedule{};

  /// Every k-th `step` communicates; at least 1. What the steps between do is the algorithm's
  /// matter: local steps, or, with gradient all-reduce, adding up gradients.
  std::int64_t num_steps_per_communication = 1;

  /// Parameters travel in pieces of up to this size. 0: `BLUEFOG_FUSION_THRESHOLD`.
  std::int64_t bucket_bytes = 0;

  Stepping stepping = Stepping::Auto;

  BufferPolicy buffers = BufferPolicy::Local;
};

}  // namespace bluefog::optimizers
