#pragma once

#include <mpi.h>

#include "bluefog_cpp/base/unique_handle.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_runtime.hpp"

namespace bluefog::mpi {

/// Frees a communicator of ours; does nothing after MPI_Finalize.
struct CommTraits {
  using Handle = MPI_Comm;
  static Handle null() noexcept { return MPI_COMM_NULL; }
  static void free(Handle comm) noexcept {
    if (is_running()) {
      MPI_Comm_free(&comm);
    }
  }
};
using UniqueComm = UniqueHandle<CommTraits>;

struct DatatypeTraits {
  using Handle = MPI_Datatype;
  static Handle null() noexcept { return MPI_DATATYPE_NULL; }
  static void free(Handle type) noexcept {
    if (is_running()) {
      MPI_Type_free(&type);
    }
  }
};
using UniqueDatatype = UniqueHandle<DatatypeTraits>;

}  // namespace bluefog::mpi
