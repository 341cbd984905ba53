#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "bluefog_cpp/store.hpp"

namespace bluefog::python {

/// The store behind a `bluefog_cpp.torch._start.stores.StoreView`. Its calls take the interpreter's
/// lock, and its exceptions become TransportErrors with their words.
[[nodiscard]] std::shared_ptr<Store> make_python_store(const py::object& view);

}  // namespace bluefog::python
