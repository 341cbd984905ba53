#include "bluefog_cpp/transport/mpi/mpi_runtime.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/mpi/mpi_error.hpp"

namespace bluefog::mpi {

namespace {

bool flag_of(int (*query)(int*)) noexcept {
  int flag = 0;
  return query(&flag) == MPI_SUCCESS && flag != 0;
}

const char* name_of_level(int level) {
  return level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED";
}

// Owns MPI's life if it began here. MPI itself is one per process, and so is this.
class Runtime {
 public:
  Runtime() {
    if (flag_of(MPI_Initialized)) {
      return;
    }
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owner_ = ::getpid();
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    // A child after a fork must not finalise its parent's MPI.
    if (owner_ == ::getpid() && is_running()) {
      MPI_Finalize();
    }
  }

 private:
  pid_t owner_ = -1;
};

}  // namespace

bool is_running() noexcept { return flag_of(MPI_Initialized) && !flag_of(MPI_Finalized); }

void require_runtime() {
  if (flag_of(MPI_Finalized)) {
    throw UnsupportedError("MPI was finalised in this process and cannot be started again");
  }
  static const Runtime runtime;
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_SERIALIZED) {
    throw UnsupportedError(
        fmt::format("MPI was initialised with {}: expected MPI_THREAD_MULTIPLE, or at least "
                    "MPI_THREAD_SERIALIZED (call MPI_Init_thread in place of MPI_Init)",
                    name_of_level(level)));
  }
}

}  // namespace bluefog::mpi
