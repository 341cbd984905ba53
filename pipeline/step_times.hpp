#pragma once

#include <cstdint>

namespace bluefog::pipeline {

/// A rank's time in a step by its uses, in seconds. They do not overlap, but for `averaging_whole`.
struct StepTimes {
  double loading = 0;   ///< of the rows, before the call (`PipelineBatch::loading_began`)
  double forward = 0;   ///< forward passes
  double backward = 0;  ///< backward passes
  double waiting = 0;   ///< for messages of other stages: the bubble
  /// With the replicas, as far as nothing else of the step hides it: the exposed part.
  double averaging = 0;
  double averaging_whole = 0;  ///< with the replicas, from its begin to its end
  double optimizer = 0;        ///< the local step
  double total = 0;            ///< of the call, so that `loading` is no part of it
};

/// The bytes and messages that a rank has moved in a step.
struct StepTraffic {
  std::int64_t stage_bytes = 0;          ///< of activations and their gradients that it has sent
  std::int64_t averaged_bytes = 0;       ///< that it has brought to averages with the replicas
  std::int64_t averaged_parameters = 0;  ///< of which there are gradients or values in those
  /// Messages to ranks of other machines, and averages with some.
  std::int64_t machine_syncs = 0;
};

}  // namespace bluefog::pipeline
