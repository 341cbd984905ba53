#pragma once

#include <Python.h>

namespace bluefog::c10d_backend {

/// Lets the interpreter's lock go while it lives, where this thread has it. Whoever holds an
/// engine's mutex may need it: the last owner of a tensor's memory may be a Python object.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock()
      : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {
  }
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;
  ~WithoutInterpreterLock() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }

 private:
  PyThreadState* state_;
};

}  // namespace bluefog::c10d_backend
