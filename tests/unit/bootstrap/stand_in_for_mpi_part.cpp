#include "bluefog_cpp/bootstrap/mpi/mpi_functions.hpp"

extern "C" const bluefog::mpi::MpiFunctions* bluefog_mpi_functions() noexcept {
  static constexpr bluefog::mpi::MpiFunctions kFunctions{
      .version = BLUEFOG_VERSION,
      .size_of_running_world = []() noexcept { return 7; },
      .make_bootstrap = nullptr,
      .make_network = nullptr};
  return &kFunctions;
}
