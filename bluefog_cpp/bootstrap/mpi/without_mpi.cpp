#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/error.hpp"

// Stands in for the MPI sources in a build without MPI.
namespace bluefog::mpi {

bool is_built() noexcept { return false; }

std::shared_ptr<Bootstrap> make_bootstrap(Deadline) {
  throw UnsupportedError(
      "this process was started by an MPI launcher, and this build has no MPI: expected a build "
      "with BLUEFOG_WITH_MPI=ON, or a process started alone");
}

}  // namespace bluefog::mpi
