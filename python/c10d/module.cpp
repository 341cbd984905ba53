#include <fmt/format.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "bluefog_cpp/bootstrap/store/exit_hooks.hpp"
#include "python/c10d/group_backend.hpp"
#include "python/c10d/tcp_store.hpp"

#if PYBIND11_INTERNALS_VERSION < 11
#error "expected the pybind11 headers that torch brings"
#endif

namespace bluefog::c10d_backend {

// The types of arguments and result are torch's own, registered by the same pybind11 headers.
PYBIND11_MODULE(_c10d, module) {
  module.doc() =
      "The backend \"bluefog\" of torch.distributed, and torch's store as ranks reach it. See "
      "bluefog_cpp._c10d_backend.";
  module.attr("torch_version") = BLUEFOG_TORCH_VERSION;
  module.def(
      "create",
      [](const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
         std::chrono::milliseconds timeout, const std::string& name,
         const std::vector<std::int64_t>& global_ranks) {
        return GroupBackend::create(store, {.rank = rank,
                                            .size = size,
                                            .name = name,
                                            .global_ranks = global_ranks,
                                            .timeout = timeout});
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"),
      py::arg("global_ranks"), py::call_guard<py::gil_scoped_release>(),
      "Collective. The backend of a group whose ranks meet in a store.");
  module.def("open_tcp_store", &open_tcp_store, py::arg("host"), py::arg("port"),
             py::arg("keeps_it"), py::arg("timeout"),
             "torch's store at a place; None where there was no answer within `timeout`.");
  module.def("run_exit_hooks", &run_exit_hooks, py::call_guard<py::gil_scoped_release>(),
             "Leaves the others, as at the exit of the process, while the interpreter is there.");
}

}  // namespace bluefog::c10d_backend
