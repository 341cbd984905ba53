#pragma once

#include <torch/optim/optimizer.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "examples/models/image_model.hpp"
#include "examples/train_images/epoch_batches.hpp"
#include "examples/train_images/options.hpp"
#include "examples/train_images/report.hpp"
#include "examples/train_images/run_data.hpp"
#include "examples/train_images/throughput.hpp"
#include "optimizers/distributed_optimizer.hpp"

namespace bluefog::examples {

/// One rank of a training run. Where ranks may be lost (`is_elastic`) it goes on with those that are
/// left, takes in a process that waits to join, and leaves in good order at SIGTERM.
class Trainer {
 public:
  /// Collective. Loads the data, makes the model, gives every rank rank 0's parameters.
  /// @throws InvalidArgument for data, names or sizes that do not fit, and for options that say how
  ///   many images a rank sees where ranks may be lost.
  Trainer(std::shared_ptr<Context> context, const TrainOptions& options);

  /// Collective. Trains all epochs, judges the model after each, reports.
  /// @return the program's exit code: 0, or that of a rank that has left before the end.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] RunDescription describe() const;
  int train();
  void begin();
  void resume();
  /// Collective: a part of the run between steps. Where a rank is lost in it the others go on without
  /// that one, and make it once more; none does so where it was over for one of them.
  void together(const std::function<void()>& part);
  /// All ranks have moved to another group.
  void regroup(const std::shared_ptr<Context>& now);
  /// Waits until the others have taken this process in, where it joins.
  void join();
  /// Also ends where this rank has left.
  EpochResult run_epoch(std::int64_t epoch);
  /// The results of the present model on the test images.
  EpochResult judge();
  /// @return the loss.
  double train_step(const std::vector<std::int64_t>& samples, std::int64_t step);
  void note_step(std::int64_t images, Clock::duration time);
  void show_progress(std::int64_t epoch, double loss);
  [[nodiscard]] double model_distance();
  [[nodiscard]] double seconds_since_begin() const;

  std::shared_ptr<Context> context_;
  TrainOptions options_;
  /// It waits to be taken in by the others.
  bool joins_;
  RunData data_;
  EpochBatches batches_;
  std::shared_ptr<ImageModel> model_;
  std::unique_ptr<torch::optim::Optimizer> local_;
  std::unique_ptr<optimizers::DistributedOptimizer> optimizer_;
  Report report_;
  Throughput throughput_;
  Clock::time_point begin_ = Clock::now();
  std::int64_t first_epoch_ = 0;
  double recent_seconds_per_step_ = 0.0;
  std::int64_t parts_made_ = 0;
  /// By any rank, when they moved to the present group.
  std::int64_t most_parts_made_ = 0;
};

}  // namespace bluefog::examples
