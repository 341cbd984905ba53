#include "python/bindings/own/python_object.hpp"

namespace bluefog::python {

bool is_interpreter_gone() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

// pybind11 puts the stack behind the text.
RaisedInPython::RaisedInPython(const py::error_already_set& error)
    : error_(std::make_shared<py::error_already_set>(error)), text_(error.what()) {
  text_ = text_.substr(0, text_.find("\n\nAt:"));
}

PythonObject::~PythonObject() {
  if (is_interpreter_gone()) {
    object_.release();
    return;
  }
  const py::gil_scoped_acquire gil;
  object_ = py::object();
}

}  // namespace bluefog::python
