#pragma once

#include <cstdint>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/checks/model_check.hpp"
#include "optimizers/options.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// The most bytes of the buckets.
struct BucketSizes {
  std::int64_t first = 0;
  std::int64_t others = 0;
};

/// A model that all ranks train in the same way.
struct AgreedModel {
  ModelParameters parameters;
  BucketSizes bucket_bytes;
  /// Numbers that the options have left to the algorithm.
  std::vector<ChosenNumber> chosen;
};

/// Collective. Whether every rank can train these parameters by `optimizer` with these options,
/// and all of them the same ones.
/// Cost and errors: as of `check_ranks_agree`.
[[nodiscard]] AgreedModel agree_on_model(Context& context, const torch::optim::Optimizer& optimizer,
                                         const NamedTensors& parameters,
                                         const DistributedOptimizerOptions& options);

}  // namespace bluefog::optimizers
