#pragma once

#include <functional>
#include <memory>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/bootstrap/launch_environment.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/settings.hpp"

namespace bluefog {

class Transport;

namespace mpi {

/// What other rooms call of MPI's part where that is a shared object of its own
/// (BLUEFOG_MPI_AT_RUN_TIME): the functions of mpi_bootstrap.hpp and mpi_network.hpp. Types of C++
/// pass through it, which both sides know from the same headers: `version` is compared first.
struct MpiFunctions {
  const char* version;
  int (*size_of_running_world)() noexcept;
  std::shared_ptr<Bootstrap> (*make_bootstrap)(const LaunchEnvironment& launch,
                                               const Settings& settings, Deadline deadline,
                                               std::function<void()> interrupt_check);
  std::unique_ptr<Transport> (*make_network)(Bootstrap& bootstrap, const Settings& settings,
                                             Deadline deadline);
};

/// The one function that the shared object exports, and its type.
inline constexpr const char* kMpiFunctionsSymbol = "bluefog_mpi_functions";
using GetMpiFunctions = const MpiFunctions* (*)() noexcept;

}  // namespace mpi
}  // namespace bluefog
