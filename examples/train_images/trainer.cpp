#include "examples/train_images/trainer.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "bluefog_cpp/error.hpp"
#include "examples/common/named_algorithm.hpp"
#include "examples/data/tensor_batch.hpp"
#include "examples/train_images/buffer_policies.hpp"
#include "examples/train_images/evaluation.hpp"
#include "examples/train_images/local_optimizer.hpp"
#include "optimizers/checkpoint.hpp"
#include "optimizers/consensus.hpp"
#include "optimizers/parameter_collectives.hpp"

namespace bluefog::examples {
namespace {

constexpr int kCropPadding = 4;

/// About twenty windows a run, of 1 to 50 steps.
std::int64_t window_steps(const TrainOptions& options, std::int64_t steps_per_epoch) {
  return std::clamp<std::int64_t>(options.epochs * steps_per_epoch / 20, 1, 50);
}

std::shared_ptr<ImageModel> make_seeded_model(const TrainOptions& options, const ImageSet& set) {
  torch::manual_seed(options.seed);
  return make_model(options.model, {set.channels, set.height, set.num_classes});
}

optimizers::DistributedOptimizerOptions distribution(const TrainOptions& options, int ranks) {
  optimizers::DistributedOptimizerOptions result =
      options_of({options.algorithm, options.topology, options.local_steps,
                  brings_momentum(options.algorithm) ? options.momentum : 0.0,
                  option_values(options.algorithm_options, {options.algorithm})},
                 ranks);
  result.buffers = buffer_policy_of(options.buffers);
  return result;
}

/// A folder that was mistyped should not come to light after an epoch.
const TrainOptions& checked(const TrainOptions& options) {
  const std::filesystem::path folder = options.checkpoint.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    throw InvalidArgument(fmt::format("--checkpoint {}: expected a folder that exists, found no {}",
                                      options.checkpoint.string(), folder.string()));
  }
  return options;
}

}  // namespace

Trainer::Trainer(std::shared_ptr<Context> context, const TrainOptions& options)
    : context_(std::move(context)),
      options_(checked(options)),
      data_(load_run_data(options, context_->rank(), context_->size())),
      sampler_(data_.shard, options.batch_size,
               options.seed + static_cast<std::uint64_t>(context_->rank())),
      model_(make_seeded_model(options, data_.train.set())),
      report_(*context_, options),
      throughput_(window_steps(options, data_.steps_per_epoch)) {
  optimizers::broadcast_parameters(*context_, *model_);
  const double local_momentum = brings_momentum(options.algorithm) ? 0.0 : options.momentum;
  local_ = make_local_optimizer(options.optimizer, model_->parameters(),
                                {options.learning_rate, local_momentum, options.weight_decay});
  optimizer_ = std::make_unique<optimizers::DistributedOptimizer>(
      context_, *local_, *model_, distribution(options, context_->size()));
}

void Trainer::run() {
  report_.begin(describe());
  if (options_.resumes) {
    resume();
  }
  begin_ = Clock::now();
  EpochResult last;
  for (std::int64_t epoch = first_epoch_; epoch < options_.epochs; ++epoch) {
    last = run_epoch(epoch);
    report_.end_epoch(last);
    if (!options_.checkpoint.empty()) {
      optimizers::save_checkpoint(options_.checkpoint.string(), *model_, *optimizer_);
    }
  }
  if (first_epoch_ >= options_.epochs) {
    if (context_->rank() == 0) {
      context_->log().warning(fmt::format(
          "--resume: all {} epochs had been made, nothing is trained; --epochs asks for more",
          options_.epochs));
    }
    last = judge();
    last.epoch = options_.epochs - 1;
  }
  report_.end(last, throughput_);
}

RunDescription Trainer::describe() const {
  RunDescription run;
  run.data_name = data_.train.set().name;
  run.train_images = data_.train.count();
  run.test_images = data_.test.count();
  run.shard_images = std::ssize(data_.shard);
  for (const at::Tensor& parameter : model_->parameters()) {
    run.parameters += parameter.numel();
  }
  run.steps_per_epoch = data_.steps_per_epoch;
  return run;
}

void Trainer::resume() {
  const optimizers::LoadedCheckpoint loaded =
      optimizers::load_checkpoint(options_.checkpoint.string(), *model_, *optimizer_);
  // Counted in images that all ranks have seen, as the number of ranks may have changed.
  const std::int64_t ranks = context_->size();
  const std::int64_t epoch_steps = data_.steps_per_epoch * ranks;
  first_epoch_ = (loaded.step_count * loaded.saved_ranks + epoch_steps / 2) / epoch_steps;
}

EpochResult Trainer::run_epoch(std::int64_t epoch) {
  const std::int64_t steps = data_.steps_per_epoch;
  const auto epoch_begin = Clock::now();
  double loss_sum = 0.0;
  model_->train();
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto begin = Clock::now();
    const double loss = train_step(epoch * steps + step);
    if (step + 1 == steps) {
      optimizer_->finish();
    }
    const std::chrono::duration<double> time = Clock::now() - begin;
    throughput_.add_step(options_.batch_size, time);
    recent_seconds_per_step_ = recent_seconds_per_step_ == 0.0
                                   ? time.count()
                                   : 0.95 * recent_seconds_per_step_ + 0.05 * time.count();
    loss_sum += loss;
    report_.watch_loss(epoch, step, loss);
    show_progress(epoch, step + 1, loss);
  }
  const double images_per_second =
      static_cast<double>(steps * options_.batch_size) /
      std::chrono::duration<double>(Clock::now() - epoch_begin).count();
  EpochResult result = judge();
  result.epoch = epoch;
  result.train_loss = loss_sum / static_cast<double>(steps);
  result.images_per_second = images_per_second;
  return result;
}

EpochResult Trainer::judge() {
  EpochResult result;
  const Evaluation judged = evaluate(*model_, data_.test, options_.max_test_images);
  result.test_accuracy = judged.accuracy;
  result.test_loss = judged.loss;
  result.consensus_distance = model_distance();
  result.seconds = seconds_since_begin();
  return result;
}

double Trainer::train_step(std::int64_t step) {
  const Augmentation augmentation =
      options_.augments ? Augmentation{kCropPadding, /*horizontal_flip=*/true} : Augmentation{};
  const TensorBatch batch = make_batch(data_.train, sampler_.batch(step), augmentation,
                                       options_.seed + static_cast<std::uint64_t>(step));
  optimizer_->zero_grad();
  const at::Tensor loss =
      torch::nn::functional::cross_entropy(model_->forward(batch.images), batch.labels);
  loss.backward();
  optimizer_->step();
  return loss.item<double>();
}

void Trainer::show_progress(std::int64_t epoch, std::int64_t step, double loss) {
  ProgressState state;
  state.epoch = epoch;
  state.epochs = options_.epochs;
  state.step = step;
  state.steps_per_epoch = data_.steps_per_epoch;
  state.steps_before = first_epoch_ * data_.steps_per_epoch;
  state.loss = loss;
  state.images_per_second = static_cast<double>(options_.batch_size * context_->size()) /
                            std::max(recent_seconds_per_step_, 1e-9);
  state.elapsed = Clock::now() - begin_;
  report_.progress(state);
}

double Trainer::model_distance() {
  // The library's is the root mean square over ranks.
  return std::sqrt(context_->size()) * optimizers::consensus_distance(*context_, *model_);
}

double Trainer::seconds_since_begin() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

}  // namespace bluefog::examples
