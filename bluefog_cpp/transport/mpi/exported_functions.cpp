#include <string>

#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_functions.hpp"
#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/transport/mpi/mpi_network.hpp"

// The way into libbluefog_mpi.so.
extern "C" __attribute__((visibility("default"))) const bluefog::mpi::MpiFunctions*
bluefog_mpi_functions() noexcept {
  static const std::string version = bluefog::own_version();
  static const bluefog::mpi::MpiFunctions functions{
      .version = version.c_str(),
      .size_of_running_world = bluefog::mpi::size_of_running_world,
      .make_bootstrap = bluefog::mpi::make_bootstrap,
      .make_network = bluefog::mpi::make_network};
  return &functions;
}
