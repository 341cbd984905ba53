#pragma once

#include <filesystem>
#include <span>

#include "examples/data/image_set.hpp"

namespace bluefog::examples {

/// The two binary formats of CIFAR: records of label bytes and 3 × 32 × 32 pixel bytes.
enum class CifarKind {
  Cifar10,   ///< one label byte, 10 classes
  Cifar100,  ///< a coarse label byte, then the fine one that is used, 100 classes
};

/// Reads CIFAR binary files (plain or gzipped) and appends them in the order given.
///
/// @throws InvalidArgument if no file is given, a file is missing or empty, its size is not a
///   whole number of records (says how many bytes were expected and found), or a label is out of
///   range.
[[nodiscard]] ImageSet read_cifar(std::span<const std::filesystem::path> files, CifarKind kind);

}  // namespace bluefog::examples
