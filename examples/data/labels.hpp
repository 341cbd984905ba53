#pragma once

#include <filesystem>

#include "examples/data/image_set.hpp"

namespace bluefog::examples {

/// @throws InvalidArgument if a label of `set` is not below its `num_classes`; names the file and
///   the first such record.
void check_labels(const ImageSet& set, const std::filesystem::path& path);

}  // namespace bluefog::examples
