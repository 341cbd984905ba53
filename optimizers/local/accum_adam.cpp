#include "optimizers/accum_adam.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <tuple>

#include "bluefog_cpp/error.hpp"
#include "optimizers/local/archive_values.hpp"
#include "optimizers/local/local_step.hpp"
#include "optimizers/local/option_checks.hpp"

namespace bluefog::optimizers {
namespace {

void check_accum_adam(std::string_view name, const AccumAdamOptions& options) {
  check_not_negative(name, "lr", options.lr);
  check_not_negative(name, "eps", options.eps);
  check_not_negative(name, "weight_decay", options.weight_decay);
  check_share(name, "betas", options.betas.first);
  check_share(name, "betas", options.betas.second);
  if (options.accumulation < 1) {
    throw InvalidArgument(
        fmt::format("{}: accumulation: expected at least 1, found {}", name, options.accumulation));
  }
}

/// The moments with one more gradient.
std::pair<at::Tensor, at::Tensor> moments_with(const AccumAdamParamState& state,
                                               const at::Tensor& gradient,
                                               const AccumAdamOptions& options) {
  const auto [beta1, beta2] = options.betas;
  return {state.exp_avg.lerp(gradient, 1 - beta1),
          (state.exp_avg_sq * beta2).addcmul_(gradient, gradient, 1 - beta2)};
}

void move_by(const at::Tensor& x, const at::Tensor& m, const at::Tensor& v, std::int64_t changes,
             const AccumAdamOptions& options) {
  const auto [beta1, beta2] = options.betas;
  const auto exponent = static_cast<double>(changes);
  const double root = std::sqrt(1 - std::pow(beta2, exponent));
  x.addcdiv_(m, (v.sqrt() / root).add_(options.eps),
             -(options.lr / (1 - std::pow(beta1, exponent))));
}

}  // namespace

void AccumAdamOptions::serialize(torch::serialize::InputArchive& archive) {
  read_value(archive, "lr", lr);
  std::tuple<double, double> both;
  read_value(archive, "betas", both);
  betas = {std::get<0>(both), std::get<1>(both)};
  read_value(archive, "eps", eps);
  read_value(archive, "weight_decay", weight_decay);
  read_value(archive, "accumulation", accumulation);
}

void AccumAdamOptions::serialize(torch::serialize::OutputArchive& archive) const {
  write_value(archive, "lr", lr);
  write_value(archive, "betas", std::make_tuple(betas.first, betas.second));
  write_value(archive, "eps", eps);
  write_value(archive, "weight_decay", weight_decay);
  write_value(archive, "accumulation", accumulation);
}

void AccumAdamParamState::serialize(torch::serialize::InputArchive& archive) {
  read_value(archive, "step", step);
  read_value(archive, "exp_avg", exp_avg);
  read_value(archive, "exp_avg_sq", exp_avg_sq);
  read_value(archive, "gradient_sum", gradient_sum);
}

void AccumAdamParamState::serialize(torch::serialize::OutputArchive& archive) const {
  write_value(archive, "step", step);
  write_value(archive, "exp_avg", exp_avg);
  write_value(archive, "exp_avg_sq", exp_avg_sq);
  write_value(archive, "gradient_sum", gradient_sum);
}

AccumAdam::AccumAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                     const AccumAdamOptions& defaults)
    : AccumAdam(groups, defaults, "AccumAdam", Decay::OfGradient) {}

AccumAdam::AccumAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                     const AccumAdamOptions& defaults, const char* name, Decay decay)
    : Optimizer(groups, std::make_unique<AccumAdamOptions>(defaults)), name_(name), decay_(decay) {
  check_accum_adam(name_, defaults);
  for (const auto& group : param_groups_) {
    check_accum_adam(name_, static_cast<const AccumAdamOptions&>(group.options()));
  }
}

at::Tensor AccumAdam::step(LossClosure closure) {
  return step_by<AccumAdamOptions>(
      param_groups_, closure,
      [this](const at::Tensor& x, const AccumAdamOptions& options) { move(x, options); });
}

AccumAdamParamState& AccumAdam::state_of(const at::Tensor& x) {
  auto& state = state_[x.unsafeGetTensorImpl()];
  if (!state) {
    auto made = std::make_unique<AccumAdamParamState>();
    for (at::Tensor* tensor : {&made->exp_avg, &made->exp_avg_sq, &made->gradient_sum}) {
      *tensor = torch::zeros_like(x, at::MemoryFormat::Preserve);
    }
    state = std::move(made);
  }
  return static_cast<AccumAdamParamState&>(*state);
}

void AccumAdam::move(const at::Tensor& x, const AccumAdamOptions& options) {
  at::Tensor gradient = x.grad();
  if (gradient.is_sparse()) {
    throw UnsupportedError(fmt::format("{}: expected dense gradients, found sparse ones", name_));
  }
  AccumAdamParamState& state = state_of(x);
  ++state.step;
  if (options.weight_decay != 0.0) {
    if (decay_ == Decay::Decoupled) {
      x.mul_(1 - options.lr * options.weight_decay);
    } else {
      gradient = gradient.add(x, options.weight_decay);
    }
  }
  state.gradient_sum.add_(gradient);
  const std::int64_t period = options.accumulation;
  const auto [m, v] = moments_with(state, gradient, options);
  const bool ends = state.step % period == 0;
  const at::Tensor mean =
      !ends || period == 1 ? gradient : state.gradient_sum / static_cast<double>(period);
  move_by(x, m, v, (state.step + period - 1) / period, options);
  if (ends) {
    std::tie(state.exp_avg, state.exp_avg_sq) = moments_with(state, mean, options);
    state.gradient_sum.zero_();
  }
}

void AccumAdam::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<AccumAdamParamState, AccumAdamOptions>(archive, *this);
}

void AccumAdam::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<AccumAdamParamState, AccumAdamOptions>(archive, *this);
}

}  // namespace bluefog::optimizers
