#include "pipeline/pipeline.hpp"

#include <utility>

#include "pipeline/runtime/pipeline_state.hpp"

namespace bluefog::pipeline {

Pipeline::Pipeline(const std::shared_ptr<Context>& context,
                   const std::shared_ptr<torch::nn::Module>& model, Loss loss,
                   const PipelineOptions& options)
    : state_(std::make_unique<State>(context, model, std::move(loss), options)) {}

Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;
Pipeline::~Pipeline() = default;

StepResult Pipeline::step(torch::optim::Optimizer& optimizer, const PipelineBatch& batch) {
  return state_->step(&optimizer, batch);
}

StepResult Pipeline::compute_gradients(const PipelineBatch& batch) {
  return state_->step(nullptr, batch);
}

PipelineOutputs Pipeline::evaluate(const PipelineBatch& batch) { return state_->evaluate(batch); }

void Pipeline::rearrange(const Arrangement& wanted, torch::optim::Optimizer& optimizer) {
  state_->rearrange(wanted, optimizer);
}

int Pipeline::choose_micro_batches(const PipelineBatch& batch, std::vector<int> candidates) {
  return state_->choose_micro_batches(batch, std::move(candidates));
}

void Pipeline::average_replicas() { state_->average_replicas(); }

std::vector<double> Pipeline::gradient_norms() { return state_->gradient_norms(); }

const PipelineLayout& Pipeline::layout() const noexcept { return state_->placement().layout; }
const Partition& Pipeline::partition() const noexcept { return state_->placement().partition; }
int Pipeline::stage() const { return layout().stage_of(state_->rank()); }
int Pipeline::replica() const { return layout().replica_of(state_->rank()); }
int Pipeline::frozen() const noexcept { return state_->frozen(); }
const std::vector<double>& Pipeline::costs() const noexcept { return state_->costs(); }
int Pipeline::micro_batches() const noexcept { return state_->micro_batches(); }

optimizers::NamedTensors Pipeline::trained_parameters() const {
  return state_->trained_parameters();
}

}  // namespace bluefog::pipeline
