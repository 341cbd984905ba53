#pragma once

#include <torch/csrc/utils/pybind.h>

/// Python's face of the C++ core, one source for each topic. The sources keep no state: Python's
/// own modules remember what is needed between calls.
///
/// The interpreter's lock is released in every call that may block or take the engine's mutex: the
/// holder of that mutex waits for the interpreter's lock when the last owner of a tensor goes.
namespace bluefog::python {

/// An argument of `def`: the call runs without the interpreter's lock.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

/// Exceptions of the core become those of `bluefog_cpp.errors`.
void bind_errors(py::module_& module);

/// `Context`, `Work`.
void bind_context(py::module_& module);

/// `Launch`, and contexts of ranks that meet in a store; after `bind_context`.
void bind_launch(py::module_& module);

/// `NeighborPlan`, `MixingMatrix`, `Schedule` and their builders.
void bind_topology(py::module_& module);

/// The operations on tensors. Tensors are on the CPU and contiguous; results go into tensors that
/// the caller made, unless only the call finds out their size.
void bind_collectives(py::module_& module);

/// `Window`.
void bind_windows(py::module_& module);

/// The calls that make up batch normalisation over all ranks.
void bind_batch_norm(py::module_& module);

/// The decisions of elastic pipelines, which need no tensor.
void bind_pipeline(py::module_& module);

/// Outputs of frozen layers that the ranks of a host keep; after `bind_context`.
void bind_activation_cache(py::module_& module);

/// Algorithms, schedules and codes of classes of Python's; after `bind_topology`.
void bind_own(py::module_& module);

/// Collectives on tensors with names, and on bytes.
void bind_parameter_collectives(py::module_& module);

/// `DistributedOptimizer` over an optimizer of Python's.
void bind_optimizers(py::module_& module);

}  // namespace bluefog::python
