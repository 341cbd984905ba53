#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "python/bindings/own/python_object.hpp"
#include "topology/schedule.hpp"

namespace bluefog::python {

/// The steps of a schedule of Python's (`bluefog_cpp.torch.Schedule`), each made when it is asked
/// for. Members are called from any thread.
///
/// `Schedule` asks with its mutex held, and Python may have to wait for the interpreter's lock
/// there: whoever has that lock lets it go before it asks a schedule.
class PythonScheduleSource final : public Schedule::Source {
 public:
  /// @param schedule has `_matrix(phase)`. With the interpreter's lock.
  PythonScheduleSource(py::object schedule, int size, std::int64_t period_steps);

  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::int64_t period_steps() const override { return period_steps_; }
  /// @throws what Python raises.
  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override;
  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override;

 private:
  PythonObject schedule_;
  int size_;
  std::int64_t period_steps_;
  /// Matrices are cheap to copy; the plans of a step's other ranks are asked for in other threads.
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, MixingMatrix> made_;
};

}  // namespace bluefog::python
