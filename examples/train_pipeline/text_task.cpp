#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "examples/data/text_files.hpp"
#include "examples/models/byte_encoder.hpp"
#include "examples/train_pipeline/task.hpp"

namespace bluefog::examples {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBytes = 256;
/// One part in so many is held back to judge by.
constexpr std::int64_t kHeldBack = 10;
/// Of a hundred bytes so many are masked.
constexpr std::int64_t kMaskedPercent = 15;
constexpr std::int64_t kNoTarget = -100;

/// Windows of a text, one behind the other; a sample is one of them with its masks.
class TextTask final : public PipelineTask {
 public:
  /// @param first the first window to train with.
  TextTask(std::string name, std::string text, std::int64_t first, std::int64_t train,
           std::int64_t test, const PipelineConfiguration& configuration)
      : name_(std::move(name)),
        text_(std::move(text)),
        first_(first),
        train_(train),
        test_(test),
        configuration_(configuration) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::int64_t train_samples() const override { return train_; }
  [[nodiscard]] std::int64_t test_samples() const override { return test_; }

  [[nodiscard]] TensorBatch train_batch(std::span<const std::int64_t> samples) const override {
    return batch(samples, first_);
  }
  [[nodiscard]] TensorBatch test_batch(std::span<const std::int64_t> samples) const override {
    return batch(samples, first_test_window());
  }

  [[nodiscard]] torch::nn::Sequential make_model() const override {
    return byte_encoder(configuration_.tokens, encoder_of(configuration_));
  }

  /// The mean over masked bytes, as many in each row.
  [[nodiscard]] at::Tensor loss(const at::Tensor& outputs,
                                const at::Tensor& targets) const override {
    return torch::nn::functional::cross_entropy(
        outputs.flatten(0, 1), targets.flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kNoTarget));
  }

  [[nodiscard]] Answers judge(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const at::Tensor is_masked = targets.ne(kNoTarget);
    const at::Tensor is_right = outputs.argmax(2).eq(targets).logical_and(is_masked);
    return {is_right.sum().item<double>(), is_masked.sum().item<double>()};
  }

 private:
  [[nodiscard]] std::int64_t first_test_window() const {
    const std::int64_t windows = std::ssize(text_) / configuration_.tokens;
    return windows - windows / kHeldBack;
  }

  [[nodiscard]] TensorBatch batch(std::span<const std::int64_t> samples, std::int64_t first) const {
    const auto rows = std::ssize(samples);
    const std::int64_t tokens = configuration_.tokens;
    TensorBatch made{at::empty({rows, tokens}, at::kLong),
                     at::full({rows, tokens}, kNoTarget, at::kLong)};
    std::int64_t* const inputs = made.images.data_ptr<std::int64_t>();
    std::int64_t* const targets = made.labels.data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t window = first + samples[static_cast<std::size_t>(row)];
      for (std::int64_t token = 0; token < tokens; ++token) {
        inputs[row * tokens + token] =
            static_cast<std::uint8_t>(text_[static_cast<std::size_t>(window * tokens + token)]);
      }
      for (const std::int64_t place : masked_places(window)) {
        targets[row * tokens + place] = std::exchange(inputs[row * tokens + place], kMaskToken);
      }
    }
    return made;
  }

  /// The same whenever it is asked for, so that outputs of frozen layers can be kept.
  [[nodiscard]] std::vector<std::int64_t> masked_places(std::int64_t window) const {
    const std::int64_t tokens = configuration_.tokens;
    std::mt19937_64 engine(static_cast<std::uint64_t>(configuration_.seed * kBytes + window));
    std::vector<std::int64_t> places(static_cast<std::size_t>(tokens));
    for (std::int64_t place = 0; place < tokens; ++place) {
      places[static_cast<std::size_t>(place)] = place;
    }
    const std::int64_t count = std::max<std::int64_t>(tokens * kMaskedPercent / 100, 1);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto other =
          i + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(tokens - i));
      std::swap(places[static_cast<std::size_t>(i)], places[static_cast<std::size_t>(other)]);
    }
    places.resize(static_cast<std::size_t>(count));
    return places;
  }

  std::string name_;
  std::string text_;
  std::int64_t first_;
  std::int64_t train_;
  std::int64_t test_;
  PipelineConfiguration configuration_;
};

std::int64_t at_most(std::int64_t count, std::int64_t wanted) {
  return wanted > 0 ? std::min(count, wanted) : count;
}

}  // namespace

std::unique_ptr<PipelineTask> make_text_task(const PipelineRunOptions& options,
                                             const PipelineConfiguration& configuration) {
  const fs::path path = options.data.empty() ? fs::path(kLicences) : options.data;
  std::string text = read_texts({path});
  const std::int64_t windows = std::ssize(text) / configuration.tokens;
  const std::int64_t held_back = windows / kHeldBack;
  if (held_back < 1) {
    throw InvalidArgument(fmt::format(
        "--data {}: expected text of at least {} bytes, {} windows of {}, found {}", path.string(),
        kHeldBack * configuration.tokens, kHeldBack, configuration.tokens, text.size()));
  }
  const std::int64_t left = windows - held_back - options.skip;
  if (left < 1) {
    throw InvalidArgument(fmt::format("--skip: expected less than the {} windows of {}, found {}",
                                      windows - held_back, path.string(), options.skip));
  }
  return std::make_unique<TextTask>(path.string(), std::move(text), options.skip,
                                    at_most(left, options.images),
                                    at_most(held_back, options.test_images), configuration);
}

}  // namespace bluefog::examples
