#include <fmt/format.h>

#include <utility>

#include "bluefog_cpp/bootstrap/mpi/mpi_part.hpp"
#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/error.hpp"

// Stands in for the MPI sources in a build that loads them at run time.
namespace bluefog::mpi {

bool is_available() noexcept {
  try {
    return load_mpi_part().version != nullptr;
  } catch (...) {
    return false;
  }
}

// A process that has no MPI gets none by this question.
int size_of_running_world() noexcept {
  if (loaded_mpi_part() == nullptr && !has_loaded_mpi()) {
    return 0;
  }
  return is_available() ? loaded_mpi_part()->size_of_running_world() : 0;
}

std::shared_ptr<Bootstrap> make_bootstrap(const LaunchEnvironment& launch, const Settings& settings,
                                          Deadline deadline,
                                          std::function<void()> interrupt_check) {
  const MpiFunctions* functions = nullptr;
  try {
    functions = &load_mpi_part();
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(fmt::format("{} say that this process was started by {}: {}",
                                       launch.stated_by, launch.launcher, error.what()));
  }
  return functions->make_bootstrap(launch, settings, deadline, std::move(interrupt_check));
}

}  // namespace bluefog::mpi
