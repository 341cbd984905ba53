#include "optimizers/distributed_optimizer.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <exception>
#include <utility>

#include "bluefog_cpp/base/where_memory_allows.hpp"
#include "optimizers/wrapper/training.hpp"

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
    : training_(std::make_unique<Training>(std::move(context), optimizer, std::move(parameters),
                                           options, std::move(buffers))) {}

DistributedOptimizer::DistributedOptimizer(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer& DistributedOptimizer::operator=(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::step() { training_->step(); }
at::Tensor DistributedOptimizer::step(const Closure& closure) { return training_->step(closure); }

void DistributedOptimizer::zero_grad(bool set_to_none) {
  training_->state().zero_grad(set_to_none);
}

void DistributedOptimizer::drain() { training_->drain(); }
void DistributedOptimizer::finish() { training_->finish(); }

void DistributedOptimizer::set_next_plan(NeighborPlan plan, ops::PlanCheck check) {
  training_->state().set_next_plan(std::move(plan), check);
}

void DistributedOptimizer::set_averaging(Averaging averaging) {
  training_->set_averaging(averaging);
}

void DistributedOptimizer::skip_steps(std::int64_t count) { training_->state().skip_steps(count); }
void DistributedOptimizer::restart() { training_->state().restart(); }

void DistributedOptimizer::save(torch::serialize::OutputArchive& archive) {
  training_->state().save(archive);
}

void DistributedOptimizer::check_saved(torch::serialize::InputArchive& archive) const {
  training_->state().check_saved(archive);
}

void DistributedOptimizer::load(torch::serialize::InputArchive& archive) {
  training_->state().load(archive);
}

NamedTensors DistributedOptimizer::carried() const { return training_->state().carried(); }

void DistributedOptimizer::check_carried(const NamedTensors& carried) const {
  training_->state().check_carried(carried);
}

void DistributedOptimizer::resume(const NamedTensors& carried, std::int64_t step_count,
                                  std::int64_t round_count) {
  training_->state().resume(carried, step_count, round_count);
}

void DistributedOptimizer::shrink() { training_->shrink(); }
int DistributedOptimizer::move_to(std::shared_ptr<Context> other) {
  return training_->move_to(std::move(other));
}
void DistributedOptimizer::join() { training_->join(); }
bool DistributedOptimizer::meeting_is_due(bool may_be_called) {
  return training_->meeting_is_due(may_be_called);
}
void DistributedOptimizer::leave() { training_->leave(); }
bool DistributedOptimizer::begin_to_give_up(std::string_view why) {
  return training_->begin_to_give_up(why);
}
bool DistributedOptimizer::give_up(std::string_view why) noexcept {
  try {
    return training_->give_up(why);
  } catch (const std::exception& error) {
    where_memory_allows([&] {
      context().log().warning(fmt::format(
          "this rank could not leave in good order, and is lost to the others: {}", error.what()));
    });
    return false;
  }
}
bool DistributedOptimizer::has_left() const noexcept { return training_->has_left(); }
void DistributedOptimizer::ask_to_leave() { training_->ask_to_leave(); }
bool DistributedOptimizer::is_departure() const { return training_->is_departure(); }
void DistributedOptimizer::share_before_departure() { training_->share_before_departure(); }
void DistributedOptimizer::pass_over(std::int64_t count) { training_->state().pass_over(count); }

void DistributedOptimizer::refuse_step(std::string_view reason) {
  training_->state().refuse_step(reason);
}
void DistributedOptimizer::forget_lost_step() { training_->state().forget_lost_step(); }

std::int64_t DistributedOptimizer::step_count() const noexcept {
  return training_->counts().steps();
}

std::int64_t DistributedOptimizer::round_count() const noexcept {
  return training_->counts().rounds();
}

torch::optim::Optimizer& DistributedOptimizer::wrapped() const noexcept {
  return training_->wrapped();
}

Context& DistributedOptimizer::context() const noexcept { return *training_->context(); }

const std::shared_ptr<Context>& DistributedOptimizer::shared_context() const noexcept {
  return training_->context();
}

const std::vector<Bucket>& DistributedOptimizer::buckets() const noexcept {
  return training_->buckets();
}

std::vector<LateRank> DistributedOptimizer::late_ranks() const {
  return training_->state().late_ranks();
}

NamedTensors DistributedOptimizer::algorithm_state() const {
  return training_->state().algorithm_state();
}

}  // namespace bluefog::optimizers
