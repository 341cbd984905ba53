#include "examples/data/tensor_batch.hpp"

#include <ATen/ops/empty.h>

#include <cstddef>

namespace bluefog::examples {

TensorBatch make_batch(const ImageDataset& dataset, std::span<const std::int64_t> samples,
                       const Augmentation& augmentation, std::uint64_t seed) {
  const ImageSet& set = dataset.set();
  const auto count = static_cast<std::int64_t>(samples.size());
  TensorBatch batch{at::empty({count, set.channels, set.height, set.width}, at::kFloat),
                    at::empty({count}, at::kLong)};
  dataset.fill_batch(
      samples, {batch.images.data_ptr<float>(), static_cast<std::size_t>(batch.images.numel())},
      {batch.labels.data_ptr<std::int64_t>(), samples.size()}, augmentation, seed);
  return batch;
}

}  // namespace bluefog::examples
