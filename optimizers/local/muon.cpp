#include "optimizers/muon.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "bluefog_cpp/error.hpp"
#include "optimizers/local/archive_values.hpp"
#include "optimizers/local/local_step.hpp"
#include "optimizers/local/option_checks.hpp"

namespace bluefog::optimizers {
namespace {

/// As many as torch takes.
constexpr std::int64_t kMostIterations = 99;

void check_muon(const MuonOptions& options) {
  check_not_negative("Muon", "lr", options.lr);
  check_not_negative("Muon", "weight_decay", options.weight_decay);
  check_not_negative("Muon", "momentum", options.momentum);
  check_not_negative("Muon", "eps", options.eps);
  if (options.ns_steps < 0 || options.ns_steps > kMostIterations) {
    throw InvalidArgument(fmt::format("Muon: ns_steps: expected a number from 0 to {}, found {}",
                                      kMostIterations, options.ns_steps));
  }
}

void check_is_matrix(const std::string& name, const at::Tensor& parameter) {
  if (parameter.dim() != 2 || parameter.is_complex()) {
    throw InvalidArgument(
        fmt::format("Muon: {}: expected real matrices, of 2 dimensions, found {}; give other "
                    "parameters to another optimizer, such as AdamW",
                    name, describe(parameter)));
  }
}

std::vector<at::Tensor> matrices_of(const NamedTensors& parameters) {
  std::vector<at::Tensor> found;
  for (const NamedTensor& parameter : parameters) {
    check_is_matrix("'" + parameter.name + "'", parameter.tensor);
    found.push_back(parameter.tensor);
  }
  return found;
}

/// NS(U): near the orthogonal matrix that is nearest to U.
at::Tensor orthogonalized(const at::Tensor& update, const MuonOptions& options) {
  const auto [a, b, c] = options.ns_coefficients;
  const bool is_tall = update.size(0) > update.size(1);
  at::Tensor x = update.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  if (is_tall) {
    x = x.t();
  }
  x.div_(x.norm().clamp(options.eps));
  for (std::int64_t step = 0; step < options.ns_steps; ++step) {
    const at::Tensor gram = x.matmul(x.t());
    x = torch::addmm(x, torch::addmm(gram, gram, gram, b, c), x, a);
  }
  return is_tall ? x.t() : x;
}

double rate_of(const MuonOptions& options, const at::Tensor& x) {
  const auto rows = static_cast<double>(x.size(0));
  const auto columns = static_cast<double>(x.size(1));
  return options.lr * (options.rate == MuonRate::Original
                           ? std::sqrt(std::max(1.0, rows / columns))
                           : 0.2 * std::sqrt(std::max(rows, columns)));
}

}  // namespace

void MuonOptions::serialize(torch::serialize::InputArchive& archive) {
  read_value(archive, "lr", lr);
  read_value(archive, "weight_decay", weight_decay);
  read_value(archive, "momentum", momentum);
  read_value(archive, "nesterov", nesterov);
  std::tuple<double, double, double> all;
  read_value(archive, "ns_coefficients", all);
  ns_coefficients = {std::get<0>(all), std::get<1>(all), std::get<2>(all)};
  read_value(archive, "eps", eps);
  read_value(archive, "ns_steps", ns_steps);
  std::int64_t kind = 0;
  read_value(archive, "rate", kind);
  rate = static_cast<MuonRate>(kind);
}

void MuonOptions::serialize(torch::serialize::OutputArchive& archive) const {
  write_value(archive, "lr", lr);
  write_value(archive, "weight_decay", weight_decay);
  write_value(archive, "momentum", momentum);
  write_value(archive, "nesterov", nesterov);
  write_value(archive, "ns_coefficients",
              std::make_tuple(ns_coefficients[0], ns_coefficients[1], ns_coefficients[2]));
  write_value(archive, "eps", eps);
  write_value(archive, "ns_steps", ns_steps);
  write_value(archive, "rate", static_cast<std::int64_t>(rate));
}

void MuonParamState::serialize(torch::serialize::InputArchive& archive) {
  read_value(archive, "momentum_buffer", momentum_buffer);
}

void MuonParamState::serialize(torch::serialize::OutputArchive& archive) const {
  write_value(archive, "momentum_buffer", momentum_buffer);
}

Muon::Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups,
           const MuonOptions& defaults)
    : Optimizer(groups, std::make_unique<MuonOptions>(defaults)) {
  check_muon(defaults);
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    check_muon(static_cast<const MuonOptions&>(param_groups_[g].options()));
    for (std::size_t place = 0; place < param_groups_[g].params().size(); ++place) {
      check_is_matrix(fmt::format("parameter {} of group {}", place, g),
                      param_groups_[g].params()[place]);
    }
  }
}

Muon::Muon(const NamedTensors& parameters, const MuonOptions& defaults)
    : Muon(matrices_of(parameters), defaults) {}

at::Tensor Muon::step(LossClosure closure) {
  return step_by<MuonOptions>(
      param_groups_, closure,
      [this](const at::Tensor& x, const MuonOptions& options) { move(x, options); });
}

void Muon::move(const at::Tensor& x, const MuonOptions& options) {
  const at::Tensor& gradient = x.grad();
  if (gradient.is_sparse()) {
    throw UnsupportedError("Muon: expected dense gradients, found sparse ones");
  }
  auto& state = state_[x.unsafeGetTensorImpl()];
  if (!state) {
    auto made = std::make_unique<MuonParamState>();
    made->momentum_buffer = torch::zeros_like(gradient, at::MemoryFormat::Preserve);
    state = std::move(made);
  }
  const at::Tensor& buffer = static_cast<MuonParamState&>(*state).momentum_buffer;
  buffer.lerp_(gradient, 1 - options.momentum);
  const at::Tensor update =
      orthogonalized(options.nesterov ? gradient.lerp(buffer, options.momentum) : buffer, options);
  x.mul_(1 - options.lr * options.weight_decay);
  x.add_(update, -rate_of(options, x));
}

void Muon::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<MuonParamState, MuonOptions>(archive, *this);
}

void Muon::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<MuonParamState, MuonOptions>(archive, *this);
}

}  // namespace bluefog::optimizers
