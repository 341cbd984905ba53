#include "optimizers/distributed_optimizer.hpp"

#include <torch/torch.h>

#include <utility>

#include "optimizers/wrapper/distributed_optimizer_state.hpp"

namespace bluefog::optimizers {

DistributedOptimizer::DistributedOptimizer(std::shared_ptr<Context> context,
                                           torch::optim::Optimizer& optimizer,
                                           const torch::nn::Module& module,
                                           const DistributedOptimizerOptions& options)
    : DistributedOptimizer(std::move(context), optimizer, named_parameters(module), options,
                           named_buffers(module)) {}

DistributedOptimizer::DistributedOptimizer(std::shared_ptr<Context> context,
                                           torch::optim::Optimizer& optimizer,
                                           NamedTensors parameters,
                                           const DistributedOptimizerOptions& options,
                                           NamedTensors buffers)
    : state_(std::make_unique<State>(std::move(context), optimizer, std::move(parameters), options,
                                     std::move(buffers))) {}

DistributedOptimizer::DistributedOptimizer(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer& DistributedOptimizer::operator=(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::step() { state_->step(); }
at::Tensor DistributedOptimizer::step(const Closure& closure) { return state_->step(closure); }

void DistributedOptimizer::zero_grad(bool set_to_none) { state_->zero_grad(set_to_none); }

void DistributedOptimizer::drain() { state_->drain(); }
void DistributedOptimizer::finish() { state_->finish(); }

void DistributedOptimizer::set_next_plan(NeighborPlan plan, ops::PlanCheck check) {
  state_->set_next_plan(std::move(plan), check);
}

void DistributedOptimizer::set_averaging(Averaging averaging) { state_->set_averaging(averaging); }

void DistributedOptimizer::skip_steps(std::int64_t count) { state_->skip_steps(count); }
void DistributedOptimizer::restart() { state_->restart(); }

void DistributedOptimizer::save(torch::serialize::OutputArchive& archive) { state_->save(archive); }

void DistributedOptimizer::check_saved(torch::serialize::InputArchive& archive) const {
  state_->check_saved(archive);
}

void DistributedOptimizer::load(torch::serialize::InputArchive& archive) { state_->load(archive); }

NamedTensors DistributedOptimizer::carried() const { return state_->carried(); }

void DistributedOptimizer::check_carried(const NamedTensors& carried) const {
  state_->check_carried(carried);
}

void DistributedOptimizer::resume(const NamedTensors& carried, std::int64_t step_count,
                                  std::int64_t round_count) {
  state_->resume(carried, step_count, round_count);
}

void DistributedOptimizer::refuse_step(std::string_view reason) { state_->refuse_step(reason); }
void DistributedOptimizer::forget_lost_step() { state_->forget_lost_step(); }

std::int64_t DistributedOptimizer::step_count() const noexcept { return state_->counts().steps(); }

std::int64_t DistributedOptimizer::round_count() const noexcept {
  return state_->counts().rounds();
}

torch::optim::Optimizer& DistributedOptimizer::wrapped() const noexcept {
  return state_->wrapped();
}

Context& DistributedOptimizer::context() const noexcept { return state_->context(); }

const std::vector<Bucket>& DistributedOptimizer::buckets() const noexcept {
  return state_->buckets();
}

NamedTensors DistributedOptimizer::algorithm_state() const { return state_->algorithm_state(); }

}  // namespace bluefog::optimizers
