#pragma once

#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <memory>

namespace bluefog::python {

/// The Python exception (KeyboardInterrupt, or a signal handler's) that ends a wait.
///
/// It has a type of its own, since Python's needs the interpreter's lock for its text, and the
/// engine asks for the text while it holds its mutex.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(std::shared_ptr<py::error_already_set> error) : error_(std::move(error)) {}

  [[nodiscard]] const char* what() const noexcept override { return "interrupted by a signal"; }

  /// Makes it the current Python exception.
  void restore() const { py::error_already_set(*error_).restore(); }

 private:
  std::shared_ptr<py::error_already_set> error_;
};

/// Runs Python's signal handlers that are due; for waits that hold no lock.
/// @throws Interrupted with the exception of a handler.
void run_signal_handlers();

}  // namespace bluefog::python
