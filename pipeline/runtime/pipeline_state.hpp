#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/pipeline.hpp"
#include "pipeline/runtime/activation_cache.hpp"
#include "pipeline/runtime/frozen_outputs.hpp"
#include "pipeline/runtime/layers.hpp"
#include "pipeline/runtime/replica_group.hpp"
#include "pipeline/runtime/stage.hpp"
#include "pipeline/runtime/stage_links.hpp"
#include "pipeline/runtime/step_clock.hpp"

namespace bluefog::pipeline {

/// The parts of a `Pipeline`.
class Pipeline::State {
 public:
  State(const std::shared_ptr<Context>& context, const std::shared_ptr<torch::nn::Module>& model,
        Loss loss, const PipelineOptions& options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  StepResult step(torch::optim::Optimizer* optimizer, const PipelineBatch& batch);
  PipelineOutputs evaluate(const PipelineBatch& batch);
  void rearrange(const Arrangement& wanted, torch::optim::Optimizer& optimizer);
  int choose_micro_batches(const PipelineBatch& batch, std::vector<int> candidates);
  void average_replicas();
  std::vector<double> gradient_norms();

  [[nodiscard]] const Placement& placement() const noexcept { return *placement_; }
  [[nodiscard]] int rank() const noexcept { return context_->rank(); }
  [[nodiscard]] int frozen() const noexcept { return frozen_; }
  [[nodiscard]] const std::vector<double>& costs() const noexcept { return costs_; }
  [[nodiscard]] int micro_batches() const noexcept;
  [[nodiscard]] optimizers::NamedTensors trained_parameters() const;

 private:
  /// Runs `call`; its exception ends the pipeline here and, by the end of the context, elsewhere.
  template <typename Call>
  auto guarded(Call&& call) {
    check_works();
    try {
      return call();
    } catch (...) {
      end();
      throw;
    }
  }
  void check_works() const;
  void end() noexcept;
  void prepare(const std::shared_ptr<torch::nn::Module>& model);
  void share_first_parameters();
  [[nodiscard]] Placement placed(const Arrangement& wanted) const;
  void check_arrangement(const Arrangement& wanted) const;
  void take_place();
  void check_batch(const PipelineBatch& batch) const;
  void check_samples(const PipelineBatch& batch) const;
  void check_step(const torch::optim::Optimizer* optimizer, const PipelineBatch& batch) const;
  StepResult run_step(torch::optim::Optimizer* optimizer, const PipelineBatch& batch);
  /// When loading of a batch has begun to hold up its step.
  [[nodiscard]] std::optional<Timeline::Clock::time_point> loading_began(
      const PipelineBatch& batch) const;
  /// The ranks of a pipeline begin a batch, of which each has been told the same.
  void begin_batch(const BatchShape& shape, StepClock& clock);
  void compute(const PipelineBatch& batch, StepClock& clock, StepResult& result);
  /// Buffers of this rank's layers, copied.
  [[nodiscard]] std::vector<at::Tensor> copied_buffers() const;
  void restore_buffers(const std::vector<at::Tensor>& copies);
  /// The seconds of passes with each number of micro-batches, of the slowest rank.
  [[nodiscard]] std::vector<double> trial_seconds(const PipelineBatch& batch,
                                                  const std::vector<int>& candidates);
  void move_layers(const Placement& before, torch::optim::Optimizer& optimizer);
  [[nodiscard]] std::string where() const;

  std::shared_ptr<Context> context_;
  PipelineOptions options_;
  Loss loss_;
  std::optional<Layers> layers_;
  std::vector<double> costs_;
  std::optional<Placement> placement_;
  int frozen_ = 0;
  std::int64_t round_ = 0;
  bool has_failed_ = false;
  Timeline::Clock::time_point last_end_ = Timeline::Clock::time_point::min();
  std::optional<ActivationCache> cache_;
  int kept_depth_ = 0;   ///< the layers whose outputs the cache has
  int older_depth_ = 0;  ///< those whose outputs it had before
  std::optional<FrozenOutputs> frozen_outputs_;
  std::optional<StageLinks> links_;
  std::optional<Stage> stage_;
  std::optional<ReplicaGroup> replicas_;
};

}  // namespace bluefog::pipeline
