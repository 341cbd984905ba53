#pragma once

#include <mpi.h>

#include <string>
#include <string_view>

namespace bluefog::mpi {

/// Throws unless `code` is MPI_SUCCESS.
///
/// `what` names the call and its purpose ("MPI_Iallgather of lengths").
/// @throws PeerFailure when the code says that a process failed (MPI with ULFM)
///         and `comm` knows which one; `peer` is named if it is not negative.
/// @throws MpiError otherwise, with MPI's own text.
void check(int code, std::string_view what, MPI_Comm comm = MPI_COMM_NULL, int peer = -1);

/// MPI's text for `code`, for places that must not throw.
[[nodiscard]] std::string error_text(int code);

}  // namespace bluefog::mpi
