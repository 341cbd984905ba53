#pragma once

#include <mpi.h>

namespace bluefog::mpi {

/// True if `code` means that another process failed (ULFM). Always false where
/// MPI was built without fault tolerance.
[[nodiscard]] bool is_process_failure(int code) noexcept;

/// Lowest rank of `comm` that is known to have failed, or −1.
[[nodiscard]] int first_failed_rank(MPI_Comm comm) noexcept;

}  // namespace bluefog::mpi
