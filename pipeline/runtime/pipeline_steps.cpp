// Steps and evaluations.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/local_step.hpp"
#include "pipeline/runtime/pipeline_state.hpp"
#include "pipeline/runtime/stage_passes.hpp"

namespace bluefog::pipeline {

void Pipeline::State::check_batch(const PipelineBatch& batch) const {
  const auto check = [&](const char* what, const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.dim() < 1 || tensor.size(0) != batch.rows) {
      throw InvalidArgument(fmt::format("{}: expected {} of {} rows, found {}", where(), what,
                                        batch.rows, optimizers::describe(tensor)));
    }
  };
  if (batch.rows < 0 || batch.all_rows < 0 || (batch.all_rows > 0 && batch.all_rows < batch.rows)) {
    throw InvalidArgument(
        fmt::format("{}: expected 0 rows or more, and no fewer of all pipelines, "
                    "found {} and {}",
                    where(), batch.rows, batch.all_rows));
  }
  if (batch.rows > 0 && stage_->part().is_first) {
    check("inputs", batch.inputs);
    check_samples(batch);
  }
  if (batch.rows > 0 && stage_->part().is_last && batch.targets.defined()) {
    check("targets", batch.targets);
  }
}

void Pipeline::State::check_samples(const PipelineBatch& batch) const {
  if (batch.samples.empty() || !cache_) {
    return;
  }
  const auto outside = std::ranges::find_if(batch.samples, [&](std::int64_t sample) {
    return sample < 0 || sample >= cache_->samples();
  });
  if (std::ssize(batch.samples) != batch.rows || outside != batch.samples.end()) {
    throw InvalidArgument(fmt::format(
        "{}: expected the numbers of {} samples, from 0 to {}, found {}{}", where(), batch.rows,
        cache_->samples() - 1, batch.samples.size(),
        outside != batch.samples.end() ? fmt::format(", {} among them", *outside) : ""));
  }
}

StepResult Pipeline::State::step(torch::optim::Optimizer* optimizer, const PipelineBatch& batch) {
  return guarded([&] { return run_step(optimizer, batch); });
}

StepResult Pipeline::State::run_step(torch::optim::Optimizer* optimizer,
                                     const PipelineBatch& batch) {
  StepResult result;
  {
    StepClock clock(context_->core().timeline(), "STEP", result.times, loading_began(batch));
    check_step(optimizer, batch);
    compute(batch, clock, result);
    if (optimizer != nullptr) {
      {
        const auto part = clock.part(&StepTimes::optimizer, "OPTIMIZER");
        optimizer->step();
      }
      if (replicas_->averages_parameters()) {
        const auto begin = Timeline::Clock::now();
        {
          const auto part = clock.part(&StepTimes::averaging, "AVERAGE PARAMETERS");
          replicas_->average_parameters(round_++, result.traffic);
        }
        clock.add_averaging(begin);
      }
    }
    links_->take_traffic(result.traffic);
  }
  last_end_ = Timeline::Clock::now();
  return result;
}

std::optional<Timeline::Clock::time_point> Pipeline::State::loading_began(
    const PipelineBatch& batch) const {
  return batch.loading_began ? std::optional(std::max(*batch.loading_began, last_end_))
                             : std::nullopt;
}

void Pipeline::State::check_step(const torch::optim::Optimizer* optimizer,
                                 const PipelineBatch& batch) const {
  check_batch(batch);
  if (placement_->layout.replicas() == 1 && batch.all_rows > 0 && batch.all_rows != batch.rows) {
    throw InvalidArgument(
        fmt::format("{}: expected as many rows of all pipelines as of the only one, {}, found {}",
                    where(), batch.rows, batch.all_rows));
  }
  if (batch.rows > 0 && stage_->part().is_last && !batch.targets.defined()) {
    throw InvalidArgument(where() + ": expected targets, found none");
  }
  if (optimizer != nullptr &&
      optimizers::reevaluates(*optimizer, optimizers::Evaluation::ByClass)) {
    throw UnsupportedError(where() +
                           ": expected an optimizer that evaluates the gradients once a step, "
                           "found one that does so several times");
  }
}

void Pipeline::State::begin_batch(const BatchShape& shape, StepClock& clock) {
  const auto part = clock.part(&StepTimes::waiting, "WAIT FOR BATCH");
  links_->begin(shape);
}

// The passes of a step, and the sums over the replicas, which begin in the last backward pass.
void Pipeline::State::compute(const PipelineBatch& batch, StepClock& clock, StepResult& result) {
  const PipelineLayout& layout = placement_->layout;
  const std::int64_t all_rows =
      batch.all_rows > 0 ? batch.all_rows : batch.rows * layout.replicas();
  const bool sums = options_.replicas == ReplicaSync::Gradients;
  const std::vector<std::int64_t> rows = micro_batch_rows(batch.rows, micro_batches());
  const int trained = layers_->first_trained(frozen_);
  const PipelineShape shape{.stages = layout.stages(),
                            .micro_batches = static_cast<int>(rows.size()),
                            .first_trained = trained < layers_->count()
                                                 ? placement_->partition.stage_of(trained)
                                                 : layout.stages()};
  begin_batch({.is_trained = true,
               .rows = batch.rows,
               .all_rows = all_rows,
               .micro_batches = std::ssize(rows)},
              clock);
  replicas_->begin_step(all_rows);
  if (frozen_outputs_ && !batch.samples.empty()) {
    const auto part = clock.part(&StepTimes::forward, "DIGEST");
    frozen_outputs_->begin_step();
  }
  StagePasses passes(*stage_, *links_, batch, rows, sums ? all_rows : batch.rows);
  passes.run(stage_actions(options_.schedule, shape, layout.stage_of(rank())), clock,
             [this] { replicas_->begin_last_backward(); });
  result.cached_rows = frozen_outputs_ ? frozen_outputs_->take_found_rows() : 0;
  result.resumed_rows = frozen_outputs_ ? frozen_outputs_->take_resumed_rows() : 0;
  if (stage_->part().is_last && batch.rows > 0) {
    result.loss = passes.weighted_loss() / static_cast<double>(batch.rows);
  }
  const auto sums_began = replicas_->begin_sums(result.traffic);
  passes.finish(clock);
  if (sums_began) {
    {
      const auto part = clock.part(&StepTimes::averaging, "SUM GRADIENTS");
      replicas_->finish_sums();
    }
    clock.add_averaging(*sums_began);
  }
}

PipelineOutputs Pipeline::State::evaluate(const PipelineBatch& given) {
  return guarded([&] {
    check_batch(given);
    PipelineBatch batch = given;
    batch.samples.clear();  // those of evaluations may be of other data
    const std::vector<std::int64_t> rows = micro_batch_rows(batch.rows, micro_batches());
    const int stages = placement_->layout.stages();
    const PipelineShape shape{
        .stages = stages, .micro_batches = static_cast<int>(rows.size()), .first_trained = stages};
    StagePasses passes(*stage_, *links_, batch, rows, std::max<std::int64_t>(batch.rows, 1));
    StepTimes times;
    StepTraffic traffic;
    {
      StepClock clock(context_->core().timeline(), "EVALUATE", times);
      begin_batch({.is_trained = false,
                   .rows = batch.rows,
                   .all_rows = 0,  // which evaluations do not look at
                   .micro_batches = std::ssize(rows)},
                  clock);
      passes.run(stage_actions(options_.schedule, shape, placement_->layout.stage_of(rank())),
                 clock);
      passes.finish(clock);
      links_->take_traffic(traffic);
    }
    last_end_ = Timeline::Clock::now();
    PipelineOutputs result;
    if (!passes.outputs().empty()) {
      result.outputs = at::cat(passes.outputs());
      if (batch.targets.defined()) {
        result.loss = passes.weighted_loss() / static_cast<double>(batch.rows);
      }
    }
    return result;
  });
}

}  // namespace bluefog::pipeline
