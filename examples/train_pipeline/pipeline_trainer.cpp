#include "examples/train_pipeline/pipeline_trainer.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/files/whole_file.hpp"
#include "bluefog_cpp/error.hpp"
#include "examples/common/collect.hpp"
#include "examples/train_images/peak_memory.hpp"
#include "examples/train_pipeline/layer_costs.hpp"

namespace bluefog::examples {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMebibyte = 1 << 20;
constexpr std::int64_t kTestRows = 100;
constexpr std::int64_t kTimedRows = 8;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

std::int64_t memory_now() {
  restart_peak();
  return resident_bytes();
}

std::int64_t parameters_of(const torch::nn::Sequential& model) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    count += parameter.numel();
  }
  return count;
}

InvalidArgument not_saved(const std::filesystem::path& path, std::string_view reason) {
  return InvalidArgument(fmt::format("--save {}: expected a file that can be written, found: {}",
                                     path.string(), reason));
}

/// Collective. Rank 0 writes the model at the end; all refuse a file that cannot be before they train.
PipelineRunOptions checked(const PipelineRunOptions& options, Context& context) {
  std::string problem;
  if (!options.save.empty() && context.rank() == 0) {
    try {
      check_writable(options.save.string());
    } catch (const InvalidArgument& error) {
      problem = error.what();
    }
  }
  if (sum_over_ranks(context, problem.empty() ? 0.0 : 1.0) > 0) {
    throw not_saved(options.save, problem.empty() ? "that rank 0 cannot write it" : problem);
  }
  return options;
}

int stages_of(const PipelineConfiguration& chosen, const Context& context) {
  return chosen.stages > 0 ? static_cast<int>(chosen.stages) : context.size();
}

}  // namespace

PipelineTrainer::PipelineTrainer(std::shared_ptr<Context> context,
                                 const PipelineRunOptions& options,
                                 const PipelineConfiguration& configuration)
    : context_(std::move(context)),
      options_(checked(options, *context_)),
      configuration_(configuration),
      report_(*context_, options.metrics),
      task_(make_task(options_, configuration_)),
      memory_before_(memory_now()),
      model_(make_model()),
      parameters_(parameters_of(model_)),
      optimizer_(std::make_unique<torch::optim::AdamW>(
          model_->parameters(), torch::optim::AdamWOptions(configuration_.lr))),
      pipeline_(
          context_, model_.ptr(),
          [this](const at::Tensor& outputs, const at::Tensor& targets) {
            return task_->loss(outputs, targets);
          },
          pipeline_options()),
      plan_(pipeline_.costs(), partition_options(),
            {.alpha = configuration_.alpha,
             .embedding_layers = 1,
             .head_layers = 1,
             .freezes = configuration_.freeze,
             .shrinks = configuration_.shrink}),
      shares_(task_->train_samples(), configuration_.batch_size,
              static_cast<std::uint64_t>(configuration_.seed)) {}

PipelineTrainer::~PipelineTrainer() = default;

torch::nn::Sequential PipelineTrainer::make_model() const {
  torch::manual_seed(static_cast<std::uint64_t>(configuration_.seed));
  torch::nn::Sequential model = task_->make_model();
  if (!options_.start.empty() && context_->rank() == 0) {  // whose parameters all ranks get
    try {
      torch::load(model, options_.start.string());
    } catch (const c10::Error& error) {
      throw InvalidArgument(fmt::format("--start {}: expected a model of these sizes, found: {}",
                                        options_.start.string(), first_line(error)));
    }
  }
  return model;
}

void PipelineTrainer::save() {
  // With one stage every rank has all of the model.
  pipeline_.rearrange({.stages = 1, .frozen = pipeline_.frozen()}, *optimizer_);
  if (context_->rank() != 0) {
    return;
  }
  std::ostringstream model;
  torch::save(model_, model);
  try {
    write_whole_file(options_.save.string(), model.view());
  } catch (const InvalidArgument& error) {
    throw not_saved(options_.save, error.what());
  }
}

pipeline::PartitionOptions PipelineTrainer::partition_options() const {
  return {.stages = stages_of(configuration_, *context_),
          .frozen_share = configuration_.repartition ? pipeline::kFrozenShare : 1.0};
}

pipeline::PipelineOptions PipelineTrainer::pipeline_options() {
  const pipeline::PartitionOptions partition = partition_options();
  pipeline::PipelineOptions options{.stages = partition.stages,
                                    .schedule = pipeline::schedule_named(configuration_.schedule),
                                    .micro_batches = static_cast<int>(configuration_.micro_batches),
                                    .frozen_share = partition.frozen_share,
                                    .replicas = configuration_.replicas == "gradients"
                                                    ? pipeline::ReplicaSync::Gradients
                                                    : pipeline::ReplicaSync::Parameters};
  if (configuration_.costs == "time") {
    std::vector<std::int64_t> samples(
        static_cast<std::size_t>(std::min(kTimedRows, task_->train_samples())));
    std::iota(samples.begin(), samples.end(), 0);
    options.costs = measured_costs(*context_, model_, task_->train_batch(samples).images);
  }
  if (configuration_.cache) {
    options.cache =
        pipeline::CacheOptions{.samples = task_->train_samples(),
                               .memory_bytes = configuration_.cache_memory_mib * kMebibyte,
                               .disk_bytes = configuration_.cache_disk_mib * kMebibyte,
                               .folder = configuration_.cache_folder};
  }
  return options;
}

void PipelineTrainer::run() {
  report_.begin(configuration_, {.data_name = task_->name(),
                                 .train_samples = task_->train_samples(),
                                 .test_samples = task_->test_samples(),
                                 .parameters = parameters_,
                                 .layers = static_cast<int>(model_->size())});
  PipelineEpoch result;
  double seconds = 0;
  for (std::int64_t epoch = 1; epoch <= configuration_.epochs; ++epoch) {
    result.epoch = epoch;
    result.replicas = pipeline_.layout().replicas();
    result.stages = pipeline_.layout().stages();
    result.frozen = pipeline_.frozen();
    const Clock::time_point begin = Clock::now();
    result.loss = train_epoch(epoch);
    if (!std::isfinite(result.loss)) {
      throw Error(fmt::format(
          "epoch {}: expected a loss that is a number, found {}: the lr {} may be too large", epoch,
          result.loss, configuration_.lr));
    }
    if (configuration_.replicas == "parameters") {
      pipeline_.average_replicas();
    }
    result.seconds = seconds_since(begin);
    result.accuracy = accuracy();
    report_.end_epoch(result);
    const Clock::time_point change = Clock::now();
    if (epoch < configuration_.epochs && configuration_.freeze) {
      const std::vector<double> norms =
          configuration_.by_gradients ? pipeline_.gradient_norms() : std::vector<double>();
      pipeline_.rearrange(plan_.advance(norms), *optimizer_);
    }
    seconds += result.seconds + seconds_since(change);
  }
  const auto grown =
      static_cast<double>(std::max<std::int64_t>(peak_resident_bytes() - memory_before_, 0));
  report_.end(result, seconds, grown / static_cast<double>(kMebibyte));
  if (!options_.save.empty()) {
    save();
  }
}

void PipelineTrainer::try_micro_batches_once(const pipeline::PipelineBatch& batch) {
  const int stages = pipeline_.layout().stages();
  if (!configuration_.try_micro_batches || stages == 1 || stages == tried_stages_) {
    return;
  }
  tried_stages_ = stages;
  const int count = pipeline_.choose_micro_batches(batch);
  report_.print(fmt::format("{} x {} stages: {} micro-batches a step, the fastest in a trial",
                            pipeline_.layout().replicas(), stages, count));
}

double PipelineTrainer::train_epoch(std::int64_t epoch) {
  model_->train();
  shares_.begin_epoch(epoch);
  double loss = 0;
  double rows = 0;
  while (shares_.left() > 0) {
    const Clock::time_point begin = Clock::now();
    const pipeline::GlobalBatch own =
        shares_.next(pipeline_.layout().replicas(), pipeline_.replica());
    pipeline::PipelineBatch batch = load(own);
    try_micro_batches_once(batch);
    batch.loading_began = begin;
    const pipeline::StepResult step = pipeline_.step(*optimizer_, batch);
    report_.add({.replica = pipeline_.replica(),
                 .stage = pipeline_.stage(),
                 .rows = own.rows,
                 .cached_rows = step.cached_rows,
                 .times = step.times,
                 .traffic = step.traffic});
    if (step.loss) {
      loss += *step.loss * static_cast<double>(batch.rows);
      rows += static_cast<double>(batch.rows);
    }
  }
  return sum_over_ranks(*context_, loss) / sum_over_ranks(*context_, rows);
}

pipeline::PipelineBatch PipelineTrainer::load(const pipeline::GlobalBatch& own) const {
  pipeline::PipelineBatch batch{.rows = std::ssize(own.samples), .all_rows = own.rows};
  const bool is_first = pipeline_.stage() == 0;
  const bool is_last = pipeline_.stage() == pipeline_.layout().stages() - 1;
  if (batch.rows > 0 && (is_first || is_last)) {
    TensorBatch loaded = task_->train_batch(own.samples);
    batch.inputs = std::move(loaded.images);
    batch.targets = std::move(loaded.labels);
  }
  if (is_first && configuration_.cache) {
    batch.samples = own.samples;
  }
  return batch;
}

double PipelineTrainer::accuracy() {
  model_->eval();
  const std::int64_t replicas = pipeline_.layout().replicas();
  const std::int64_t samples = task_->test_samples();
  const std::int64_t rows = std::clamp<std::int64_t>(samples / replicas, 1, kTestRows);
  double right = 0;
  double seen = 0;
  for (std::int64_t first = 0; first < samples; first += rows * replicas) {
    const std::int64_t begin = std::min(first + rows * pipeline_.replica(), samples);
    std::vector<std::int64_t> own(static_cast<std::size_t>(std::min(rows, samples - begin)));
    std::iota(own.begin(), own.end(), begin);
    if (own.empty()) {
      continue;
    }
    const TensorBatch batch = task_->test_batch(own);
    const pipeline::PipelineOutputs found =
        pipeline_.evaluate({.inputs = batch.images, .rows = std::ssize(own)});
    if (found.outputs.defined()) {
      const Answers answers = task_->judge(found.outputs, batch.labels);
      right += answers.right;
      seen += answers.all;
    }
  }
  return sum_over_ranks(*context_, right) / sum_over_ranks(*context_, seen);
}

}  // namespace bluefog::examples
