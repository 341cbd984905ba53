#pragma once

#include <cstdint>
#include <filesystem>

#include "examples/models/image_model.hpp"
#include "optimizers/distributed_optimizer.hpp"

namespace bluefog::examples {

/// One rank's file in a checkpoint folder: `rank_2_of_4.pt`.
[[nodiscard]] std::filesystem::path checkpoint_file(const std::filesystem::path& folder, int rank,
                                                    int ranks);

/// Saves the model, the optimizer's state and the number of epochs that are done. The file appears
/// whole or not at all. Every rank calls it, after `finish`.
/// @throws Error if the file cannot be written.
void save_checkpoint(const std::filesystem::path& file, const ImageModel& model,
                     optimizers::DistributedOptimizer& optimizer, std::int64_t epochs_done);

/// Loads what `save_checkpoint` wrote.
/// @return the number of epochs that are done.
/// @throws InvalidArgument if the file is missing, damaged, or of another model or optimizer.
[[nodiscard]] std::int64_t load_checkpoint(const std::filesystem::path& file, ImageModel& model,
                                           optimizers::DistributedOptimizer& optimizer);

}  // namespace bluefog::examples
