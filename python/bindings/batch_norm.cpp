#include <cstdint>
#include <optional>
#include <tuple>

#include "nn/batch_statistics.hpp"
#include "python/bindings/bindings.hpp"

namespace bluefog::python {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

// A result that is not there is None.
MaybeTensor if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

std::tuple<MaybeTensor, at::Tensor, at::Tensor> gradients(
    Context& context, const at::Tensor& grad_output, const at::Tensor& input,
    const nn::BatchStatistics& statistics, const MaybeTensor& weight, double eps, bool with_input) {
  auto found = nn::batch_norm_gradients(
      context, grad_output, input, statistics, weight.value_or(at::Tensor()), eps,
      with_input ? nn::GradientsWanted::InputAndParameters : nn::GradientsWanted::Parameters);
  return {if_defined(found.input), found.weight, found.bias};
}

}  // namespace

void bind_batch_norm(py::module_& module) {
  py::class_<nn::BatchStatistics>(module, "BatchStatistics", "Of all ranks' batches together.")
      .def_readonly("mean", &nn::BatchStatistics::mean)
      .def_readonly("variance", &nn::BatchStatistics::variance)
      .def_readonly("count", &nn::BatchStatistics::count);
  module.def("batch_statistics", &nn::batch_statistics, py::arg("context"), py::arg("input"),
             WithoutGil());
  module.def(
      "normalize",
      [](const at::Tensor& input, const nn::BatchStatistics& statistics, const MaybeTensor& weight,
         const MaybeTensor& bias, double eps) {
        return nn::normalize(input, statistics, weight.value_or(at::Tensor()),
                             bias.value_or(at::Tensor()), eps);
      },
      py::arg("input"), py::arg("statistics"), py::arg("weight"), py::arg("bias"), py::arg("eps"),
      WithoutGil());
  module.def(
      "update_running",
      [](at::Tensor mean, at::Tensor variance, const nn::BatchStatistics& statistics,
         double momentum) { nn::update_running(mean, variance, statistics, momentum); },
      py::arg("mean"), py::arg("variance"), py::arg("statistics"), py::arg("momentum"),
      WithoutGil());
  module.def("batch_norm_gradients", &gradients, py::arg("context"), py::arg("grad_output"),
             py::arg("input"), py::arg("statistics"), py::arg("weight"), py::arg("eps"),
             py::arg("with_input"), WithoutGil());
}

}  // namespace bluefog::python
