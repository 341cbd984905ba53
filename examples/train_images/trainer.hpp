#pragma once

#include <torch/optim/optimizer.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "bluefog_cpp/context.hpp"
#include "examples/data/batch_sampler.hpp"
#include "examples/models/image_model.hpp"
#include "examples/train_images/options.hpp"
#include "examples/train_images/report.hpp"
#include "examples/train_images/run_data.hpp"
#include "examples/train_images/throughput.hpp"
#include "optimizers/distributed_optimizer.hpp"

namespace bluefog::examples {

/// One rank of a training run.
class Trainer {
 public:
  /// Collective. Loads the data, makes the model, gives every rank rank 0's parameters.
  /// @throws InvalidArgument for data, names or sizes that do not fit.
  Trainer(std::shared_ptr<Context> context, const TrainOptions& options);

  /// Collective. Trains all epochs, judges the model after each, reports.
  void run();

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] RunDescription describe() const;
  void resume();
  EpochResult run_epoch(std::int64_t epoch);
  /// The results of the present model on the test images.
  EpochResult judge();
  /// @return the loss.
  double train_step(std::int64_t step);
  void show_progress(std::int64_t epoch, std::int64_t step, double loss);
  [[nodiscard]] double model_distance();
  [[nodiscard]] double seconds_since_begin() const;

  std::shared_ptr<Context> context_;
  TrainOptions options_;
  RunData data_;
  BatchSampler sampler_;
  std::shared_ptr<ImageModel> model_;
  std::unique_ptr<torch::optim::Optimizer> local_;
  std::unique_ptr<optimizers::DistributedOptimizer> optimizer_;
  Report report_;
  Throughput throughput_;
  Clock::time_point begin_ = Clock::now();
  std::int64_t first_epoch_ = 0;
  double recent_seconds_per_step_ = 0.0;
};

}  // namespace bluefog::examples
