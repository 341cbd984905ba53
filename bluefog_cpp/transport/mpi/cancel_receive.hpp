#pragma once

#include <mpi.h>

namespace bluefog::mpi {

enum class CancelOutcome { Cancelled, Received, Running };

/// Cancels a receive that is posted. MPI may have matched it by then: it is
/// then waited for a little.
[[nodiscard]] inline CancelOutcome cancel_receive(MPI_Request& request) noexcept {
  constexpr int kTries = 1000;
  MPI_Cancel(&request);
  for (int i = 0; i < kTries; ++i) {
    int ended = 0;
    MPI_Status status{};
    if (MPI_Test(&request, &ended, &status) != MPI_SUCCESS) {
      return CancelOutcome::Cancelled;
    }
    if (ended != 0) {
      int cancelled = 0;
      MPI_Test_cancelled(&status, &cancelled);
      return cancelled != 0 ? CancelOutcome::Cancelled : CancelOutcome::Received;
    }
  }
  return CancelOutcome::Running;
}

}  // namespace bluefog::mpi
