#pragma once

#include <mpi.h>

#include <vector>

namespace bluefog::mpi {

/// True if `code` means that another process failed (ULFM). Always false where
/// MPI was built without fault tolerance.
[[nodiscard]] bool is_process_failure(int code) noexcept;

/// Ranks of `comm` that are known to have failed, rising. Acknowledges them, so
/// that receives from any source go on.
[[nodiscard]] std::vector<int> failed_ranks(MPI_Comm comm);

}  // namespace bluefog::mpi
