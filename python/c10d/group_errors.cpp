#include "python/c10d/group_errors.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "bluefog_cpp/error.hpp"

namespace bluefog::c10d_backend {
namespace {

/// A Python exception on its way through threads that do not hold the interpreter's lock.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(std::shared_ptr<py::error_already_set> error) : error_(std::move(error)) {}
  [[nodiscard]] const char* what() const noexcept override { return "interrupted by a signal"; }
  [[noreturn]] void rethrow() const {
    const py::gil_scoped_acquire gil;
    throw py::error_already_set(*error_);
  }

 private:
  std::shared_ptr<py::error_already_set> error_;
};

bool are_in_order(const std::vector<std::int64_t>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != static_cast<std::int64_t>(i)) {
      return false;
    }
  }
  return true;
}

c10::SourceLocation here() { return {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}; }

}  // namespace

GroupErrors::GroupErrors(std::string group, const std::vector<std::int64_t>& global_ranks) {
  if (!are_in_order(global_ranks)) {
    ranks_text_ = fmt::format(" (ranks of group '{}', which are those of torch.distributed {})",
                              group, fmt::join(global_ranks, ", "));
  }
}

void GroupErrors::rethrow(const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Interrupted& interruption) {
    interruption.rethrow();
  } catch (const MismatchError& e) {
    throw c10::DistBackendError(here(), e.what() + ranks_text_);
  } catch (const InvalidArgument& e) {
    throw c10::ValueError(here(), e.what() + ranks_text_);
  } catch (const UnsupportedError& e) {
    throw c10::NotImplementedError(here(), e.what() + ranks_text_);
  } catch (const Error& e) {
    throw c10::DistBackendError(here(), e.what() + ranks_text_);
  }
}

std::exception_ptr GroupErrors::translated(const std::exception_ptr& error) const noexcept {
  try {
    rethrow(error);
  } catch (...) {
    return std::current_exception();
  }
}

void run_signal_handlers() {
  if (Py_IsInitialized() == 0) {
    return;
  }
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw Interrupted(std::make_shared<py::error_already_set>());
  }
}

}  // namespace bluefog::c10d_backend
