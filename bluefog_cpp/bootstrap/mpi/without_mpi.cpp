#include <fmt/format.h>

#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/error.hpp"

// Stands in for the MPI sources in a build without MPI.
namespace bluefog::mpi {

bool is_available() noexcept { return false; }

int size_of_running_world() noexcept { return 0; }

std::shared_ptr<Bootstrap> make_bootstrap(const LaunchEnvironment& launch, const Settings&,
                                          Deadline, std::function<void()>) {
  throw UnsupportedError(fmt::format(
      "{} say that this process was started by {}, and this build has no MPI: expected a build with "
      "BLUEFOG_WITH_MPI=ON, or a process started alone",
      launch.stated_by, launch.launcher));
}

}  // namespace bluefog::mpi
