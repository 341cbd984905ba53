// The choice of the number of micro-batches by trial.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/allreduce.hpp"
#include "pipeline/runtime/pipeline_state.hpp"

namespace bluefog::pipeline {

std::vector<at::Tensor> Pipeline::State::copied_buffers() const {
  std::vector<at::Tensor> copies;
  for (int layer = stage_->part().begin; layer < stage_->part().end; ++layer) {
    for (const LayerTensor& item : layers_->tensors(layer)) {
      if (!item.is_parameter) {
        copies.push_back(item.tensor.detach().clone());
      }
    }
  }
  return copies;
}

void Pipeline::State::restore_buffers(const std::vector<at::Tensor>& copies) {
  const torch::NoGradGuard no_grad;
  auto next = copies.begin();
  for (int layer = stage_->part().begin; layer < stage_->part().end; ++layer) {
    for (const LayerTensor& item : layers_->tensors(layer)) {
      if (!item.is_parameter) {
        item.tensor.copy_(*next++);
      }
    }
  }
}

std::vector<double> Pipeline::State::trial_seconds(const PipelineBatch& batch,
                                                   const std::vector<int>& candidates) {
  std::vector<double> seconds;
  for (const int candidate : candidates) {
    options_.micro_batches = candidate;
    run_step(nullptr, batch);  // the first one allocates
    seconds.push_back(run_step(nullptr, batch).times.total);
  }
  ops::allreduce(*context_,
                 {.data = seconds.data(),
                  .count = static_cast<std::int64_t>(seconds.size()),
                  .dtype = Dtype::Float64},
                 {.name = "seconds of micro-batches", .reduction = ops::Reduction::Max});
  return seconds;
}

int Pipeline::State::choose_micro_batches(const PipelineBatch& batch, std::vector<int> candidates) {
  return guarded([&] {
    const int stages = placement_->layout.stages();
    if (candidates.empty()) {
      candidates = {stages, 2 * stages, 4 * stages, 8 * stages};
    }
    for (const int candidate : candidates) {
      if (candidate < 1) {
        throw InvalidArgument(
            fmt::format("{}: expected at least 1 micro-batch, found {}", where(), candidate));
      }
    }
    PipelineBatch tried = batch;
    tried.samples.clear();
    const std::vector<at::Tensor> buffers = copied_buffers();
    const std::vector<double> seconds = trial_seconds(tried, candidates);
    restore_buffers(buffers);
    replicas_->begin_step(0);
    const auto best = std::ranges::min_element(seconds) - seconds.begin();
    options_.micro_batches = candidates[static_cast<std::size_t>(best)];
    return options_.micro_batches;
  });
}

}  // namespace bluefog::pipeline
