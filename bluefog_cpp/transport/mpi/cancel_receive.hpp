#pragma once

#include <mpi.h>

namespace bluefog::mpi {

enum class CancelOutcome { Cancelled, Received, Running };

/// Ends a receive that is posted, and waits a little for one that MPI has matched by then. Not for
/// receives from a process that has failed: Open MPI 5 takes harm from it.
[[nodiscard]] inline CancelOutcome cancel_receive(MPI_Request& request) noexcept {
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    int ended = 0;
    MPI_Status status{};
    const int code = MPI_Test(&request, &ended, &status);
    if (ended != 0 || request == MPI_REQUEST_NULL) {
      int cancelled = 0;
      if (code == MPI_SUCCESS) {
        MPI_Test_cancelled(&status, &cancelled);
      }
      return code != MPI_SUCCESS || cancelled != 0 ? CancelOutcome::Cancelled
                                                   : CancelOutcome::Received;
    }
    if (i == 0) {
      MPI_Cancel(&request);
    }
  }
  return CancelOutcome::Running;
}

}  // namespace bluefog::mpi
