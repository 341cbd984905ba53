#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "examples/data/tensor_batch.hpp"
#include "examples/models/vision_transformer.hpp"
#include "examples/train_pipeline/configuration.hpp"

namespace bluefog::examples {

/// The choices of the command line.
struct PipelineRunOptions {
  std::filesystem::path data{};     ///< empty: what Debian has for the model
  std::int64_t skip = 0;            ///< training samples in front that are left out
  std::int64_t images = 0;          ///< training samples at most, for short runs; 0: all
  std::int64_t test_images = 2000;  ///< test samples at most; 0: all
  std::filesystem::path metrics{};  ///< empty: none
  std::filesystem::path start{};    ///< a model that an earlier run has saved; empty: a new one
  std::filesystem::path save{};     ///< for the model; empty: none
};

/// Right answers among all.
struct Answers {
  double right = 0;
  double all = 0;
};

/// The task of a pipeline: samples by their numbers, a model, and how its outputs are judged. The same
/// on all ranks.
class PipelineTask {
 public:
  PipelineTask() = default;
  PipelineTask(const PipelineTask&) = delete;
  PipelineTask& operator=(const PipelineTask&) = delete;
  virtual ~PipelineTask() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::int64_t train_samples() const = 0;
  [[nodiscard]] virtual std::int64_t test_samples() const = 0;
  /// Inputs and targets of training samples; the same for a sample whenever it is asked for.
  [[nodiscard]] virtual TensorBatch train_batch(std::span<const std::int64_t> samples) const = 0;
  [[nodiscard]] virtual TensorBatch test_batch(std::span<const std::int64_t> samples) const = 0;
  /// Parameters are drawn from torch's default generator.
  [[nodiscard]] virtual torch::nn::Sequential make_model() const = 0;
  /// The mean of the rows' losses.
  [[nodiscard]] virtual at::Tensor loss(const at::Tensor& outputs,
                                        const at::Tensor& targets) const = 0;
  [[nodiscard]] virtual Answers judge(const at::Tensor& outputs,
                                      const at::Tensor& targets) const = 0;
};

/// The task of the configuration's model: `vit` tells the classes of images, `bert` the bytes of a
/// text that are masked. @throws InvalidArgument for data that cannot be.
[[nodiscard]] std::unique_ptr<PipelineTask> make_task(const PipelineRunOptions& options,
                                                      const PipelineConfiguration& configuration);

[[nodiscard]] std::unique_ptr<PipelineTask> make_image_task(
    const PipelineRunOptions& options, const PipelineConfiguration& configuration);
[[nodiscard]] std::unique_ptr<PipelineTask> make_text_task(
    const PipelineRunOptions& options, const PipelineConfiguration& configuration);

/// The encoder of a configuration.
[[nodiscard]] EncoderShape encoder_of(const PipelineConfiguration& configuration);

}  // namespace bluefog::examples
