#include <memory>
#include <string>
#include <utility>

#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/registry/algorithm_library.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/own/algorithm_round.hpp"
#include "python/bindings/own/python_compression.hpp"
#include "python/bindings/own/python_row.hpp"
#include "python/bindings/own/python_schedule.hpp"
#include "topology/families.hpp"

namespace bluefog::python {
namespace {

void bind_algorithm_round(py::module_& module) {
  py::class_<AlgorithmRound, std::shared_ptr<AlgorithmRound>>(
      module, "AlgorithmRound", "See python/bindings/own/algorithm_round.hpp.")
      .def("local_step", &AlgorithmRound::local_step, py::arg("bucket"), WithoutGil())
      .def("start_average", &AlgorithmRound::start_average, py::arg("values"),
           py::arg("is_over_all"), WithoutGil())
      .def("wait", &AlgorithmRound::wait, py::arg("call"), WithoutGil())
      .def("gather", &AlgorithmRound::gather, py::arg("values"), WithoutGil())
      .def_property_readonly("index", &AlgorithmRound::index)
      .def_property_readonly("plan", [](const AlgorithmRound& round) {
        const auto plan = round.plan();
        return plan ? std::make_shared<NeighborPlan>(*plan) : nullptr;
      });
}

}  // namespace

void bind_own(py::module_& module) {
  py::enum_<optimizers::Stochastic>(module, "Stochastic", "The sums of W that are 1.")
      .value("any", optimizers::Stochastic::Any)
      .value("averages", optimizers::Stochastic::Averages)
      .value("rows", optimizers::Stochastic::Rows)
      .value("columns", optimizers::Stochastic::Columns)
      .value("rows_and_columns", optimizers::Stochastic::RowsAndColumns);
  bind_algorithm_round(module);
  module.def(
      "register_python_algorithm",
      [](const py::object& description, bool replaces) {
        optimizers::AlgorithmRow row = row_of_python(description);
        replaces ? optimizers::replace_algorithm(std::move(row))
                 : optimizers::register_algorithm(std::move(row));
      },
      py::arg("description"), py::arg("replaces"),
      "replaces: whether the row takes the place of the one of its name.");
  module.def(
      "python_schedule",
      [](py::object schedule, int size, std::int64_t period_steps) {
        return Schedule(
            std::make_unique<PythonScheduleSource>(std::move(schedule), size, period_steps));
      },
      py::arg("schedule"), py::arg("size"), py::arg("period_steps"));
  module.def("family_names", &topology::family_names, "The names of `bftopo list`.");
  py::class_<ops::Compression, std::shared_ptr<ops::Compression>>(module, "Compression",
                                                                  "See ops/compression.hpp.")
      .def_property_readonly("name", &ops::Compression::name);
  module.def(
      "python_compression",
      [](py::object code, std::string name) -> std::shared_ptr<ops::Compression> {
        return std::make_shared<PythonCompression>(std::move(code), std::move(name));
      },
      py::arg("code"), py::arg("name"));
  module.def("compression_names", &ops::compression_names,
             "The names that compression_named knows.");
}

}  // namespace bluefog::python
