#include "bluefog_cpp/transport/network.hpp"

#include <string>
#include <vector>

#include "bluefog_cpp/transport/host_sharing.hpp"
#include "bluefog_cpp/transport/mpi/mpi_network.hpp"

namespace bluefog {

std::unique_ptr<Transport> make_network(Bootstrap& bootstrap, const Settings& settings,
                                        Deadline deadline) {
  std::unique_ptr<Transport> network = mpi::make_network(bootstrap, settings, deadline);
  if (network || !bootstrap.in_process()) {
    return network;
  }
  auto options = shm::ShmOptions::from(settings);
  options.polled = true;
  const std::vector<std::string> one_host(static_cast<std::size_t>(bootstrap.size()), "network");
  std::shared_ptr<shm::HostArena> arena;  // apart from that of the ranks which share memory
  return shm::connect(bootstrap, "threads", one_host, arena, options, deadline).transport;
}

}  // namespace bluefog
