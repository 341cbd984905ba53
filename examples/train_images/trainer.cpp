#include "examples/train_images/trainer.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "examples/common/collect.hpp"
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

optimizers::DistributedOptimizerOptions distribution(const TrainOptions& options,
                                                     const Context& context) {
  // Graphs of a name or a file are of the ranks that run: a process that joins has the default one.
  const std::string topology =
      context.is_applicant() ? std::string(kDefaultTopology) : options.topology;
  optimizers::DistributedOptimizerOptions result =
      options_of({options.algorithm, topology, options.local_steps,
                  brings_momentum(options.algorithm) ? options.momentum : 0.0,
                  option_values(options.algorithm_options, {options.algorithm})},
                 context.size());
  result.buffers = buffer_policy_of(options.buffers);
  return result;
}

volatile std::sig_atomic_t is_told_to_leave = 0;

/// SIGTERM asks to leave, once; a second one ends the process.
void leave_at_sigterm() {
  struct sigaction action {};
  action.sa_handler = [](int) { is_told_to_leave = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

/// A folder that was mistyped should not come to light after an epoch.
const TrainOptions& checked(const TrainOptions& options, const Context& context) {
  const auto refuse = [](std::string_view option, std::string_view expected) {
    throw InvalidArgument(fmt::format(
        "{}: expected {} where ranks may be lost (BLUEFOG_ON_FAILURE=shrink, bfrun --min-np), since "
        "the images are dealt anew to those that are left",
        option, expected));
  };
  if (is_elastic(context) && options.shards != ShardKind::Iid) {
    refuse("--shards", "iid");
  }
  if (is_elastic(context) && options.max_batches > 0) {
    refuse("--max-batches", "0");
  }
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
      options_(checked(options, *context_)),
      joins_(context_->is_applicant()),
      data_(load_run_data(options, context_->rank(), context_->size())),
      batches_(*context_, options, data_),
      model_(make_seeded_model(options, data_.train.set())),
      report_(context_, options),
      throughput_(window_steps(options, data_.steps_per_epoch)) {
  optimizers::broadcast_parameters(*context_, *model_);
  const double local_momentum = brings_momentum(options.algorithm) ? 0.0 : options.momentum;
  local_ = make_local_optimizer(options.optimizer, model_->parameters(),
                                {options.learning_rate, local_momentum, options.weight_decay});
  optimizers::DistributedOptimizerOptions distributed = distribution(options, *context_);
  distributed.when_shrunk = [this](const std::shared_ptr<Context>& now) { regroup(now); };
  optimizer_ =
      std::make_unique<optimizers::DistributedOptimizer>(context_, *local_, *model_, distributed);
}

int Trainer::run() {
  try {
    return train();
  } catch (const Error&) {  // between ranks: they are not where they could wait for each other
    throw;
  } catch (const std::exception& error) {
    (void)optimizer_->give_up(error.what());
    throw;
  }
}

int Trainer::train() {
  constexpr int kLeft = 128 + SIGTERM;
  if (is_elastic(*context_)) {
    leave_at_sigterm();
  }
  if (joins_) {
    join();
  } else {
    begin();
  }
  begin_ = Clock::now();
  EpochResult last;
  for (std::int64_t epoch = first_epoch_; epoch < options_.epochs; ++epoch) {
    last = run_epoch(epoch);
    if (optimizer_->has_left()) {
      report_.say_departure(epoch);
      return kLeft;
    }
    together([&] { report_.end_epoch(last); });
    if (!options_.checkpoint.empty()) {
      together(
          [&] { optimizers::save_checkpoint(options_.checkpoint.string(), *model_, *optimizer_); });
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
  together([&] { report_.end(last, throughput_); });
  return 0;
}

void Trainer::begin() {
  together([&] { report_.begin(describe()); });
  if (options_.resumes) {
    resume();
  }
}

void Trainer::join() {
  optimizer_->join();
  first_epoch_ = batches_.epoch();
}

void Trainer::together(const std::function<void()>& part) {
  for (bool is_made = false; !is_made;) {
    try {
      part();
      is_made = true;
    } catch (const RankLostError&) {
      optimizer_->shrink();
      is_made = parts_made_ < most_parts_made_;
    }
  }
  ++parts_made_;
}

void Trainer::regroup(const std::shared_ptr<Context>& now) {
  batches_.deal_anew(*now);
  const auto parts_made = collect(*now, static_cast<double>(parts_made_));
  most_parts_made_ = static_cast<std::int64_t>(std::ranges::max(parts_made));
  if (std::exchange(joins_, false)) {
    parts_made_ = most_parts_made_;
  }
  context_ = now;
  report_.move_to(now);
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
  const auto epoch_begin = Clock::now();
  double loss_sum = 0.0;
  std::int64_t steps = 0;
  std::int64_t images = 0;
  model_->train();
  batches_.begin(epoch);
  while (true) {
    const auto begin = Clock::now();
    const std::vector<std::int64_t> samples = batches_.next();
    if (samples.empty()) {
      break;
    }
    const double loss = train_step(samples, epoch * data_.steps_per_epoch + batches_.step() - 1);
    if (optimizer_->has_left()) {
      return {};
    }
    if (batches_.is_over()) {
      optimizer_->finish();
    }
    note_step(std::ssize(samples), Clock::now() - begin);
    ++steps;
    images += std::ssize(samples);
    loss_sum += loss;
    report_.watch_loss(epoch, batches_.step() - 1, loss);
    show_progress(epoch, loss);
  }
  const double images_per_second =
      static_cast<double>(images) /
      std::chrono::duration<double>(Clock::now() - epoch_begin).count();
  EpochResult result = judge();
  result.epoch = epoch;
  result.train_loss = loss_sum / static_cast<double>(std::max<std::int64_t>(steps, 1));
  result.images_per_second = images_per_second;
  return result;
}

void Trainer::note_step(std::int64_t images, Clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  throughput_.add_step(images, time);
  recent_seconds_per_step_ =
      recent_seconds_per_step_ == 0.0 ? seconds : 0.95 * recent_seconds_per_step_ + 0.05 * seconds;
}

EpochResult Trainer::judge() {
  EpochResult result;
  const Evaluation judged = evaluate(*model_, data_.test, options_.max_test_images);
  result.test_accuracy = judged.accuracy;
  result.test_loss = judged.loss;
  together([&] { result.consensus_distance = model_distance(); });
  result.seconds = seconds_since_begin();
  return result;
}

double Trainer::train_step(const std::vector<std::int64_t>& samples, std::int64_t step) {
  if (is_told_to_leave != 0) {
    is_told_to_leave = 0;
    optimizer_->leave();
  }
  const Augmentation augmentation =
      options_.augments ? Augmentation{kCropPadding, /*horizontal_flip=*/true} : Augmentation{};
  const TensorBatch batch = make_batch(data_.train, samples, augmentation,
                                       options_.seed + static_cast<std::uint64_t>(step));
  optimizer_->zero_grad();
  const at::Tensor loss =
      torch::nn::functional::cross_entropy(model_->forward(batch.images), batch.labels);
  loss.backward();
  optimizer_->step();
  return loss.item<double>();
}

void Trainer::show_progress(std::int64_t epoch, double loss) {
  ProgressState state;
  state.epoch = epoch;
  state.epochs = options_.epochs;
  state.step = batches_.step();
  state.steps_per_epoch = batches_.steps();
  state.steps_before = first_epoch_ * state.steps_per_epoch;
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
