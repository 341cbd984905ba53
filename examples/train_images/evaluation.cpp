#include "examples/train_images/evaluation.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "examples/data/tensor_batch.hpp"

namespace bluefog::examples {
namespace {

constexpr std::int64_t kBatch = 250;

}  // namespace

Evaluation evaluate(ImageModel& model, const ImageDataset& dataset, std::int64_t max_images) {
  const torch::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const std::int64_t count =
      max_images > 0 ? std::min(max_images, dataset.count()) : dataset.count();
  std::int64_t right = 0;
  double loss = 0.0;
  std::vector<std::int64_t> samples;
  for (std::int64_t begin = 0; begin < count; begin += kBatch) {
    samples.resize(static_cast<std::size_t>(std::min(kBatch, count - begin)));
    std::iota(samples.begin(), samples.end(), begin);
    const TensorBatch batch = make_batch(dataset, samples);
    const at::Tensor logits = model.forward(batch.images);
    right += logits.argmax(1).eq(batch.labels).sum().item<std::int64_t>();
    loss += torch::nn::functional::cross_entropy(
                logits, batch.labels,
                torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
                .item<double>();
  }
  model.train(was_training);
  return {static_cast<double>(right) / static_cast<double>(count),
          loss / static_cast<double>(count)};
}

}  // namespace bluefog::examples
