#include "bluefog_cpp/bootstrap/mpi/process_failure.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>

// MPI's fault tolerance is an extension.
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace bluefog::mpi {

#if defined(MPIX_ERR_PROC_FAILED)

namespace {

// The functions of ULFM, which the MPI that runs may lack although that of the build had them; null
// then.
struct Ulfm {
  using Acknowledge = int (*)(MPI_Comm);
  using Acknowledged = int (*)(MPI_Comm, MPI_Group*);

  Acknowledge acknowledge =
      reinterpret_cast<Acknowledge>(::dlsym(RTLD_DEFAULT, "MPIX_Comm_failure_ack"));
  Acknowledged acknowledged =
      reinterpret_cast<Acknowledged>(::dlsym(RTLD_DEFAULT, "MPIX_Comm_failure_get_acked"));

  [[nodiscard]] bool is_there() const noexcept { return acknowledge && acknowledged; }
};

const Ulfm& ulfm() noexcept {
  static const Ulfm functions;
  return functions;
}

}  // namespace

bool is_process_failure(int code) noexcept {
  int error_class = MPI_SUCCESS;
  if (!ulfm().is_there() || MPI_Error_class(code, &error_class) != MPI_SUCCESS) {
    return false;
  }
  return error_class == MPIX_ERR_PROC_FAILED || error_class == MPIX_ERR_PROC_FAILED_PENDING ||
         error_class == MPIX_ERR_REVOKED;
}

std::vector<int> failed_ranks(MPI_Comm comm) {
  std::vector<int> ranks;
  if (comm == MPI_COMM_NULL || !ulfm().is_there()) {
    return ranks;
  }
  MPI_Group failed = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  int count = 0;
  if (ulfm().acknowledge(comm) == MPI_SUCCESS &&
      ulfm().acknowledged(comm, &failed) == MPI_SUCCESS &&
      MPI_Group_size(failed, &count) == MPI_SUCCESS && MPI_Comm_group(comm, &all) == MPI_SUCCESS) {
    std::vector<int> places(static_cast<std::size_t>(count));
    std::iota(places.begin(), places.end(), 0);
    ranks.resize(places.size());
    MPI_Group_translate_ranks(failed, count, places.data(), all, ranks.data());
    std::sort(ranks.begin(), ranks.end());
  }
  for (MPI_Group* group : {&failed, &all}) {
    if (*group != MPI_GROUP_NULL && *group != MPI_GROUP_EMPTY) {
      MPI_Group_free(group);
    }
  }
  return ranks;
}

#else

bool is_process_failure(int) noexcept { return false; }
std::vector<int> failed_ranks(MPI_Comm) { return {}; }

#endif

}  // namespace bluefog::mpi
