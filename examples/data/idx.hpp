#pragma once

#include <filesystem>
#include <string>

#include "examples/data/image_set.hpp"

namespace bluefog::examples {

/// Reads one pair of IDX files (MNIST's format: big-endian header, then bytes), plain or gzipped.
///
/// @param images 3-dimensional unsigned bytes (magic 0x00000803): count × height × width.
/// @param labels 1-dimensional unsigned bytes (magic 0x00000801): count, each below `num_classes`.
/// @throws InvalidArgument if a file is missing, truncated (says how many bytes were expected and
///   found), longer than its header says, has another magic number or an empty dimension, if the
///   counts differ, or if a label is out of range.
[[nodiscard]] ImageSet read_idx(const std::filesystem::path& images,
                                const std::filesystem::path& labels, const std::string& name,
                                int num_classes = 10);

}  // namespace bluefog::examples
