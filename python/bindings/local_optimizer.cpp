#include "python/bindings/local_optimizer.hpp"

#include <memory>
#include <utility>

namespace bluefog::python {
namespace {

struct NoOptions final : torch::optim::OptimizerCloneableOptions<NoOptions> {};

std::vector<torch::optim::OptimizerParamGroup> groups_of(
    const std::vector<std::vector<at::Tensor>>& groups) {
  std::vector<torch::optim::OptimizerParamGroup> result;
  for (const auto& parameters : groups) {
    result.emplace_back(parameters);
  }
  return result;
}

}  // namespace

LocalOptimizer::LocalOptimizer(const std::vector<std::vector<at::Tensor>>& groups,
                               py::function step)
    : Optimizer(groups_of(groups), std::make_unique<NoOptions>()), step_(std::move(step)) {}

LocalOptimizer::~LocalOptimizer() {
  const py::gil_scoped_acquire gil;
  step_ = py::function();
}

at::Tensor LocalOptimizer::step(LossClosure /*closure*/) {
  const py::gil_scoped_acquire gil;
  py::list groups;
  for (const auto& group : param_groups()) {
    groups.append(py::cast(group.params()));
  }
  step_(groups);
  return {};
}

}  // namespace bluefog::python
