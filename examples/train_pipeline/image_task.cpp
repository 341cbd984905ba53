#include <fmt/format.h>
#include <torch/torch.h>

#include <utility>

#include "bluefog_cpp/error.hpp"
#include "examples/data/image_dataset.hpp"
#include "examples/data/load.hpp"
#include "examples/train_pipeline/task.hpp"

namespace bluefog::examples {
namespace {

/// `count` images behind the first `skip`; 0: all of those.
ImageSet part_of(ImageSet set, std::int64_t skip, std::int64_t count) {
  if (skip >= set.count()) {
    throw InvalidArgument(fmt::format("--skip: expected less than the {} images of {}, found {}",
                                      set.count(), set.name, skip));
  }
  set.pixels.erase(set.pixels.begin(), set.pixels.begin() + skip * set.image_bytes());
  set.labels.erase(set.labels.begin(), set.labels.begin() + skip);
  if (count > 0 && count < set.count()) {
    set.pixels.resize(static_cast<std::size_t>(count * set.image_bytes()));
    set.labels.resize(static_cast<std::size_t>(count));
  }
  return set;
}

class ImageTask final : public PipelineTask {
 public:
  ImageTask(ImageDataset train, ImageDataset test, const PipelineConfiguration& configuration)
      : train_(std::move(train)), test_(std::move(test)), configuration_(configuration) {}

  [[nodiscard]] std::string name() const override { return train_.set().name; }
  [[nodiscard]] std::int64_t train_samples() const override { return train_.count(); }
  [[nodiscard]] std::int64_t test_samples() const override { return test_.count(); }

  [[nodiscard]] TensorBatch train_batch(std::span<const std::int64_t> samples) const override {
    return make_batch(train_, samples);
  }
  [[nodiscard]] TensorBatch test_batch(std::span<const std::int64_t> samples) const override {
    return make_batch(test_, samples);
  }

  [[nodiscard]] torch::nn::Sequential make_model() const override {
    const ImageSet& set = train_.set();
    return vision_transformer({.channels = set.channels,
                               .side = set.height,
                               .patch = configuration_.patch,
                               .classes = set.num_classes},
                              encoder_of(configuration_));
  }

  [[nodiscard]] at::Tensor loss(const at::Tensor& outputs,
                                const at::Tensor& targets) const override {
    return torch::nn::functional::cross_entropy(outputs, targets);
  }

  [[nodiscard]] Answers judge(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return {outputs.argmax(1).eq(targets).sum().item<double>(),
            static_cast<double>(targets.size(0))};
  }

 private:
  ImageDataset train_;
  ImageDataset test_;
  PipelineConfiguration configuration_;
};

}  // namespace

std::unique_ptr<PipelineTask> make_image_task(const PipelineRunOptions& options,
                                              const PipelineConfiguration& configuration) {
  TrainTest data = load_image_data(options.data.empty() ? kDefaultDataFolder : options.data);
  const PixelStatistics statistics = pixel_statistics(data.train);
  if (data.train.height != data.train.width) {
    throw InvalidArgument(fmt::format("{}: expected square images, found {}x{} pixels",
                                      options.data.string(), data.train.height, data.train.width));
  }
  return std::make_unique<ImageTask>(
      ImageDataset(part_of(std::move(data.train), options.skip, options.images), statistics),
      ImageDataset(part_of(std::move(data.test), 0, options.test_images), statistics),
      configuration);
}

}  // namespace bluefog::examples
