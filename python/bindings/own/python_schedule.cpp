#include "python/bindings/own/python_schedule.hpp"

#include <utility>

namespace bluefog::python {
namespace {

constexpr std::size_t kMostMatricesKept = 1'024;

}  // namespace

PythonScheduleSource::PythonScheduleSource(py::object schedule, int size, std::int64_t period_steps)
    : schedule_(std::move(schedule)), size_(size), period_steps_(period_steps) {}

// Python runs without the mutex: it may wait for the interpreter's lock.
MixingMatrix PythonScheduleSource::mixing_matrix(std::int64_t phase) const {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = made_.find(phase); found != made_.end()) {
      return found->second;
    }
  }
  MixingMatrix matrix =
      in_python([&] { return schedule_.get().attr("_matrix")(phase).cast<MixingMatrix>(); });
  const std::scoped_lock lock(mutex_);
  if (made_.size() >= kMostMatricesKept) {
    made_.clear();
  }
  return made_.emplace(phase, std::move(matrix)).first->second;
}

NeighborPlan PythonScheduleSource::plan_for(int rank, std::int64_t phase) const {
  return mixing_matrix(phase).plan_for(rank);
}

}  // namespace bluefog::python
