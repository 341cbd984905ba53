#pragma once

#include <functional>
#include <future>
#include <optional>

#include "bluefog_cpp/bootstrap/mpi/open_mpi_variables.hpp"

namespace bluefog::mpi {

/// The start of MPI in this process. MPI_Init_thread waits for all ranks of the launch as long as
/// that takes, and cannot be cancelled: it runs in a thread of its own, so that the caller can say
/// whom it waits for, and give up.
class MpiStart {
 public:
  /// Begins it, unless MPI was initialised already.
  MpiStart();

  /// Whether MPI was started here.
  [[nodiscard]] bool is_ours() const noexcept { return started_.valid(); }

  /// Waits until MPI has started, and calls `look` meanwhile, whose exceptions end the wait and not
  /// the start: it may be waited for again. @throws MpiError.
  void wait(const std::function<void()>& look);

 private:
  std::optional<OpenMpiVariables> variables_;
  std::shared_future<int> started_;
};

}  // namespace bluefog::mpi
