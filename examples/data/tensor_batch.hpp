#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <span>

#include "examples/data/image_dataset.hpp"

namespace bluefog::examples {

/// A batch as a model takes it.
struct TensorBatch {
  at::Tensor images;  ///< float32, N × channels × height × width, contiguous, CPU
  at::Tensor labels;  ///< int64, N
};

/// The batch of `samples`, in new tensors. @throws as `ImageDataset::fill_batch`.
[[nodiscard]] TensorBatch make_batch(const ImageDataset& dataset,
                                     std::span<const std::int64_t> samples,
                                     const Augmentation& augmentation = {}, std::uint64_t seed = 0);

}  // namespace bluefog::examples
