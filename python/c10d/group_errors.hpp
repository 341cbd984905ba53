#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace bluefog::c10d_backend {

/// Turns this library's exceptions into those that torch gives to Python: ValueError for arguments,
/// NotImplementedError for what is not supported, torch.distributed.DistBackendError for all that
/// has to do with other ranks, and a signal handler's own.
class GroupErrors {
 public:
  /// @param global_ranks of the ranks of the group; empty: they are the same.
  GroupErrors(std::string group, const std::vector<std::int64_t>& global_ranks);

  /// Throws the exception in its new form. Takes the interpreter's lock where it has to.
  [[noreturn]] void rethrow(const std::exception_ptr& error) const;
  /// The exception in its new form.
  [[nodiscard]] std::exception_ptr translated(const std::exception_ptr& error) const noexcept;

  /// Runs `call`, whose exceptions get their new form.
  template <typename Call>
  decltype(auto) with(Call&& call) const {
    try {
      return std::forward<Call>(call)();
    } catch (...) {
      rethrow(std::current_exception());
    }
  }

 private:
  /// Words behind a message that names ranks of the group; empty where they are the global ones.
  std::string ranks_text_;
};

/// Runs the interpreter's signal handlers that are due. @throws what ends the wait.
void run_signal_handlers();

}  // namespace bluefog::c10d_backend
