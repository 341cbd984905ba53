#pragma once

#include <filesystem>

#include "examples/data/image_set.hpp"

namespace bluefog::examples {

/// The folder of Debian's package `dataset-fashion-mnist`.
inline constexpr const char* kDefaultDataFolder = "/usr/share/datasets/fashion-mnist";

/// Reads the data set that lies in `folder`, recognised by its files:
///
/// | data set             | files                                                           |
/// |----------------------|-----------------------------------------------------------------|
/// | MNIST, Fashion-MNIST | `{train,t10k}-{images-idx3,labels-idx1}-ubyte`, also `.gz`      |
/// | CIFAR-10             | `data_batch_1.bin` … `data_batch_5.bin`, `test_batch.bin`       |
/// | CIFAR-100            | `train.bin`, `test.bin`                                         |
///
/// IDX files may also be spelt with a dot (`train-images.idx3-ubyte`). CIFAR files may lie one
/// folder deeper, as their archives unpack them.
///
/// @throws InvalidArgument if the folder is missing (says how to get the default one) or holds none
///   of these sets (lists the files sought), if the test images differ in shape from the training
///   images, and for every damage that the readers of these formats find.
[[nodiscard]] TrainTest load_image_data(const std::filesystem::path& folder = kDefaultDataFolder);

}  // namespace bluefog::examples
