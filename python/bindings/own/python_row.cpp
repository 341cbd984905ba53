#include "python/bindings/own/python_row.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/own/python_algorithm.hpp"
#include "python/bindings/own/python_object.hpp"

namespace bluefog::python {
namespace {

using Row = optimizers::AlgorithmRow;

std::vector<optimizers::AlgorithmOption> options_in(const py::object& description) {
  std::vector<optimizers::AlgorithmOption> options;
  for (const py::handle option : description.attr("options")) {
    options.push_back(
        {.name = option.attr("name").cast<std::string>(),
         .default_value =
             option.attr("default").cast<decltype(optimizers::AlgorithmOption::default_value)>(),
         .meaning = option.attr("meaning").cast<std::string>(),
         .least = option.attr("least").cast<double>(),
         .below = option.attr("below").cast<double>()});
  }
  return options;
}

optimizers::MixingNeeds mixing_in(const py::object& description) {
  const py::object given = description.attr("mixing");
  optimizers::MixingNeeds mixing;
  mixing.stochastic = given.attr("stochastic_of_core").cast<optimizers::Stochastic>();
  mixing.is_symmetric = given.attr("is_symmetric").cast<bool>();
  mixing.is_fixed = given.attr("is_fixed").cast<bool>();
  if (const py::object bound = given.attr("eigenvalues_above"); !bound.is_none()) {
    mixing.eigenvalues_above = {.value = bound.cast<double>(),
                                .text = fmt::format("{:.4g}", bound.cast<double>())};
  }
  return mixing;
}

void set_schedules(Row& row, const py::object& description) {
  const auto has = [&](const char* what) { return !description.attr(what).is_none(); };
  const std::string name = row.name;
  if (has("default_schedule")) {
    row.default_schedule = [name](int size) {
      return in_python(
          [&] { return python_rows().attr("default_schedule")(name, size).cast<Schedule>(); });
    };
  }
  if (has("transform")) {
    row.transform = [name](const Schedule& schedule) {
      return in_python(
          [&] { return python_rows().attr("transformed")(name, schedule).cast<Schedule>(); });
    };
  }
  if (has("why_unfit")) {
    row.why_unfit_schedule = [name](const optimizers::DistributedOptimizerOptions& /*options*/,
                                    const Schedule& schedule) {
      return in_python(
          [&] { return python_rows().attr("why_unfit")(name, schedule).cast<std::string>(); });
    };
  }
}

}  // namespace

py::module_ python_rows() { return py::module_::import("bluefog_cpp.torch._own.rows"); }

Row row_of_python(const py::object& description) {
  Row row;
  const auto text = [&](const char* what) { return description.attr(what).cast<std::string>(); };
  const auto is = [&](const char* what) { return description.attr(what).cast<bool>(); };
  row.name = text("name");
  row.aliases = description.attr("aliases").cast<std::vector<std::string>>();
  row.equation = text("equation");
  row.description = text("description");
  row.source = text("source");
  row.overlap = text("overlap");
  row.memory.carried = text("carried");
  row.memory.copies = description.attr("copies").cast<int>();
  row.options = options_in(description);
  row.mixing = mixing_in(description);
  row.needs_every_step = is("needs_every_step");
  row.allows_reevaluation = is("allows_reevaluation");
  row.bound_to_values = text("bound_to_values");
  row.full_precision_because = text("full_precision_because");
  set_schedules(row, description);
  row.make = [name = row.name](optimizers::AlgorithmParts parts) {
    return std::make_unique<PythonAlgorithm>(std::move(parts), name);
  };
  return row;
}

}  // namespace bluefog::python
