#pragma once

#include <torch/csrc/utils/pybind.h>

#include "optimizers/algorithm_row.hpp"

namespace bluefog::python {

/// The module of Python's that knows its algorithms by name. With the interpreter's lock.
[[nodiscard]] py::module_ python_rows();

/// The row of a class of Python's. It holds nothing of Python's, and may outlive it: its functions
/// look up the class by its name.
/// @param description an object of `bluefog_cpp.torch._own.rows.Description`.
[[nodiscard]] optimizers::AlgorithmRow row_of_python(const py::object& description);

}  // namespace bluefog::python
