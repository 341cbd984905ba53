#pragma once

#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace bluefog::python {

/// Whether the interpreter has ended or is about to, and has taken its objects along: threads that
/// want its lock are ended by it.
[[nodiscard]] bool is_interpreter_gone();

/// An exception of Python's on its way through C++, whose text is short ("ValueError: found 3"), and
/// is read by any thread, without the interpreter's lock.
class RaisedInPython : public std::exception {
 public:
  /// With the interpreter's lock.
  explicit RaisedInPython(const py::error_already_set& error);

  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

  /// Makes it the current Python exception, with its class and its stack. With the lock.
  void restore() const { py::error_already_set(*error_).restore(); }

 private:
  std::shared_ptr<py::error_already_set> error_;
  std::string text_;
};

/// `body()`, with the interpreter's lock, from any thread. It returns nothing of Python's.
/// @throws RaisedInPython where Python raises.
template <typename Body>
auto in_python(const Body& body) {
  const py::gil_scoped_acquire gil;
  try {
    return body();
  } catch (const py::error_already_set& error) {
    throw RaisedInPython(error);
  }
}

/// An object of Python's that C++ holds, and lets go in any thread, with the interpreter's lock or
/// without.
class PythonObject {
 public:
  PythonObject() = default;
  /// With the interpreter's lock.
  explicit PythonObject(py::object object) : object_(std::move(object)) {}
  PythonObject(const PythonObject&) = delete;
  PythonObject& operator=(const PythonObject&) = delete;
  ~PythonObject();

  /// For use with the interpreter's lock.
  [[nodiscard]] const py::object& get() const noexcept { return object_; }
  /// With the interpreter's lock.
  void set(py::object object) { object_ = std::move(object); }

 private:
  py::object object_;
};

}  // namespace bluefog::python
