#pragma once

#include <cstdint>
#include <vector>

#include "examples/data/image_dataset.hpp"
#include "examples/data/sharding.hpp"
#include "examples/train_images/options.hpp"

namespace bluefog::examples {

/// The data that one rank of a run trains on and is judged by.
struct RunData {
  ImageDataset train;  ///< all images; a rank looks at those of its shard only
  ImageDataset test;
  std::vector<std::int64_t> shard;
  std::int64_t steps_per_epoch = 0;  ///< the same on every rank
};

/// Loads the data that `options` name and takes `rank`'s shard of it. An epoch has as many steps as
/// `ranks` ranks need to see as many images as there are, at least one.
/// @throws InvalidArgument as `load_image_data` and the shards.
[[nodiscard]] RunData load_run_data(const TrainOptions& options, int rank, int ranks);

}  // namespace bluefog::examples
