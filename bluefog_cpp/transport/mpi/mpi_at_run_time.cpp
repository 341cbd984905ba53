#include "bluefog_cpp/bootstrap/mpi/mpi_part.hpp"
#include "bluefog_cpp/transport/mpi/mpi_network.hpp"

// Stands in for the MPI sources in a build that loads them at run time.
namespace bluefog::mpi {

std::unique_ptr<Transport> make_network(Bootstrap& bootstrap, const Settings& settings,
                                        Deadline deadline) {
  // A bootstrap that stands on MPI has loaded it.
  const MpiFunctions* const functions = loaded_mpi_part();
  return functions == nullptr ? nullptr : functions->make_network(bootstrap, settings, deadline);
}

}  // namespace bluefog::mpi
