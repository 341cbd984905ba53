#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <memory>

#include "bluefog_cpp/context.hpp"
#include "examples/train_pipeline/configuration.hpp"
#include "examples/train_pipeline/epoch_report.hpp"
#include "examples/train_pipeline/task.hpp"
#include "pipeline/elastic_plan.hpp"
#include "pipeline/epoch_shares.hpp"
#include "pipeline/pipeline.hpp"

namespace torch::optim {
class Optimizer;
}

namespace bluefog::examples {

/// Trains a task's model in an elastic pipeline. Every rank has one, and makes the same calls.
class PipelineTrainer {
 public:
  /// Reads the data. @throws InvalidArgument for data, sizes and a pipeline that cannot be.
  PipelineTrainer(std::shared_ptr<Context> context, const PipelineRunOptions& options,
                  const PipelineConfiguration& configuration);
  ~PipelineTrainer();
  PipelineTrainer(const PipelineTrainer&) = delete;
  PipelineTrainer& operator=(const PipelineTrainer&) = delete;

  /// All epochs, with an arrangement of its own for each.
  void run();

 private:
  [[nodiscard]] torch::nn::Sequential make_model() const;
  /// Collective. Writes the whole model, for `PipelineRunOptions::start`.
  void save();
  [[nodiscard]] pipeline::PipelineOptions pipeline_options();
  [[nodiscard]] pipeline::PartitionOptions partition_options() const;
  /// Stays with the fastest number of micro-batches for such a batch, where stages have changed.
  void try_micro_batches_once(const pipeline::PipelineBatch& batch);
  /// The mean loss of all pipelines' rows.
  double train_epoch(std::int64_t epoch);
  /// The rows of this rank's pipeline, as far as its stage looks at them.
  [[nodiscard]] pipeline::PipelineBatch load(const pipeline::GlobalBatch& own) const;
  /// The share of right answers of all pipelines, each on rows of its own.
  double accuracy();

  std::shared_ptr<Context> context_;
  PipelineRunOptions options_;
  PipelineConfiguration configuration_;
  EpochReport report_;
  std::unique_ptr<PipelineTask> task_;
  std::int64_t memory_before_;
  torch::nn::Sequential model_;
  std::int64_t parameters_;  // of the whole model, before a pipeline lets go of others' stages
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  pipeline::Pipeline pipeline_;
  pipeline::ElasticPlan plan_;
  pipeline::EpochShares shares_;
  int tried_stages_ = 1;  ///< for which micro-batches were tried; a single one has nothing to try
};

}  // namespace bluefog::examples
