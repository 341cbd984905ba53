#include "bluefog_cpp/transport/mpi/process_failure.hpp"

#include <initializer_list>

// MPI ≥ 4.0 is required, its fault tolerance is not.
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace bluefog::mpi {

#if defined(MPIX_ERR_PROC_FAILED)

bool is_process_failure(int code) noexcept {
  int error_class = MPI_SUCCESS;
  if (MPI_Error_class(code, &error_class) != MPI_SUCCESS) {
    return false;
  }
  return error_class == MPIX_ERR_PROC_FAILED || error_class == MPIX_ERR_PROC_FAILED_PENDING ||
         error_class == MPIX_ERR_REVOKED;
}

int first_failed_rank(MPI_Comm comm) noexcept {
  if (comm == MPI_COMM_NULL) {
    return -1;
  }
  MPI_Group failed = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  int rank = MPI_UNDEFINED;
  if (MPIX_Comm_failure_ack(comm) == MPI_SUCCESS &&
      MPIX_Comm_failure_get_acked(comm, &failed) == MPI_SUCCESS) {
    int count = 0;
    const int first = 0;
    if (MPI_Group_size(failed, &count) == MPI_SUCCESS && count > 0 &&
        MPI_Comm_group(comm, &all) == MPI_SUCCESS) {
      MPI_Group_translate_ranks(failed, 1, &first, all, &rank);
    }
  }
  for (MPI_Group* group : {&failed, &all}) {
    if (*group != MPI_GROUP_NULL && *group != MPI_GROUP_EMPTY) {
      MPI_Group_free(group);
    }
  }
  return rank == MPI_UNDEFINED ? -1 : rank;
}

#else

bool is_process_failure(int) noexcept { return false; }
int first_failed_rank(MPI_Comm) noexcept { return -1; }

#endif

}  // namespace bluefog::mpi
