#pragma once

#include <torch/optim/optimizer.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "bluefog_cpp/context.hpp"
#include "examples/train_language/byte_text.hpp"
#include "examples/train_language/language_model.hpp"
#include "examples/train_language/language_options.hpp"
#include "optimizers/distributed_optimizer.hpp"

namespace bluefog::examples {

/// One rank of a training run.
class LanguageTrainer {
 public:
  /// Collective. Reads the text, makes the model, gives every rank rank 0's parameters.
  /// @throws InvalidArgument for data, names or sizes that do not fit.
  LanguageTrainer(std::shared_ptr<Context> context, const LanguageOptions& options);

  /// Collective. Makes all steps, reports every so many; a run that resumes goes on.
  void run();

 private:
  using Clock = std::chrono::steady_clock;

  void begin();
  void train_step(std::int64_t step);
  [[nodiscard]] at::Tensor loss_of(const Windows& windows);
  /// Collective.
  void report(std::int64_t step);
  [[nodiscard]] double test_loss();
  /// Collective: of all hosts together since the last call; nothing without counters.
  [[nodiscard]] std::optional<double> sent_since_last();
  [[nodiscard]] double mean_over_ranks(double value);

  std::shared_ptr<Context> context_;
  LanguageOptions options_;
  ByteText text_;
  std::shared_ptr<LanguageModel> model_;
  std::unique_ptr<torch::optim::Optimizer> local_;
  std::unique_ptr<optimizers::DistributedOptimizer> optimizer_;
  std::int64_t done_ = 0;
  std::int64_t sent_before_ = 0;
  double loss_sum_ = 0.0;
  std::int64_t steps_since_ = 0;
  Clock::time_point since_ = Clock::now();
};

}  // namespace bluefog::examples
