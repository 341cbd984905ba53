#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <string_view>

#include "bluefog_cpp/error.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/interrupt.hpp"
#include "python/bindings/own/python_object.hpp"
#include "python/bindings/rethrow.hpp"

namespace bluefog::python {
namespace {

/// A message with what is no UTF-8, as the name of a file may be, escaped.
py::str message(std::string_view what) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(what.data(), static_cast<py::ssize_t>(what.size()), "backslashreplace"));
}

template <typename... Arguments>
void raise(const char* name, std::string_view what, const Arguments&... arguments) {
  const py::object type = py::module_::import("bluefog_cpp.errors").attr(name);
  PyErr_SetObject(type.ptr(), type(message(what), arguments...).ptr());
}

// Derived classes come before their bases.
void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const Interrupted& e) {
    e.restore();
  } catch (const RaisedInPython& e) {
    e.restore();
  } catch (const LateMismatchError& e) {
    raise("LateMismatchError", e.what());
  } catch (const MismatchError& e) {
    raise("MismatchError", e.what());
  } catch (const InvalidArgument& e) {
    raise("InvalidArgument", e.what());
  } catch (const WindowGoneError& e) {
    raise("WindowGoneError", e.what(), e.rank());
  } catch (const StateError& e) {
    raise("StateError", e.what());
  } catch (const UnsupportedError& e) {
    raise("UnsupportedError", e.what());
  } catch (const TimeoutError& e) {
    raise("TimeoutError", e.what());
  } catch (const RankLostError& e) {
    raise("RankLostError", e.what(), e.rank());
  } catch (const PeerFailure& e) {
    raise("PeerFailure", e.what(), e.rank());
  } catch (const MpiError& e) {
    raise("MpiError", e.what(), e.code());
  } catch (const CudaError& e) {
    raise("CudaError", e.what(), e.code());
  } catch (const NcclError& e) {
    raise("NcclError", e.what(), e.code());
  } catch (const TransportError& e) {
    raise("TransportError", e.what());
  } catch (const InternalError& e) {
    raise("InternalError", e.what());
  } catch (const Error& e) {
    raise("Error", e.what());
  } catch (const c10::Error& e) {
    PyErr_SetObject(PyExc_RuntimeError, message(e.what_without_backtrace()).ptr());
  }
}

}  // namespace

void rethrow_through_torch(const std::exception_ptr& thrown) {
  const py::gil_scoped_acquire gil;
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::Error&) {
    return;
  } catch (...) {
    translate(thrown);  // throws what is no error of ours
  }
  python_error error;
  error.persist();
  throw error;
}

void run_signal_handlers() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw Interrupted(std::make_shared<py::error_already_set>());
  }
}

void bind_errors(py::module_& /*module*/) { py::register_local_exception_translator(&translate); }

}  // namespace bluefog::python
