#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

namespace bluefog::python {

/// The same object for Python to own. The last owner may be Python's collector, which holds the
/// interpreter's lock. The object's end waits for threads that may want the lock: it is released.
template <typename T>
std::shared_ptr<T> owned_by_python(std::shared_ptr<T> object) {
  T* const raw = object.get();
  return {raw, [owner = std::move(object)](T* /*raw*/) mutable {
            if (PyGILState_Check() != 0) {
              const py::gil_scoped_release released;
              owner.reset();
            } else {
              owner.reset();
            }
          }};
}

/// Forgets the object for good, without ending it: for the child of a fork, which has none of the
/// threads that its end would wait for.
template <typename T>
void abandon(const std::shared_ptr<T>& object) {
  new std::shared_ptr<T>(object);  // NOLINT: never to be destroyed
}

}  // namespace bluefog::python
