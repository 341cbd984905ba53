#include "bluefog_cpp/transport/network.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/host_sharing.hpp"
#include "bluefog_cpp/transport/mpi/mpi_network.hpp"
#include "bluefog_cpp/transport/tcp/tcp_network.hpp"

namespace bluefog {

std::unique_ptr<Transport> make_network(Bootstrap& bootstrap, const Settings& settings,
                                        Deadline deadline) {
  if (settings.network != NetworkChoice::Tcp) {
    if (auto network = mpi::make_network(bootstrap, settings, deadline)) {
      return network;
    }
  }
  if (settings.network == NetworkChoice::Mpi) {
    throw UnsupportedError(
        fmt::format("rank {}, BLUEFOG_NETWORK=mpi: expected ranks that MPI has started, in a build "
                    "with MPI; found bootstrap '{}'",
                    bootstrap.rank(), bootstrap.name()));
  }
  if (settings.network == NetworkChoice::Tcp || !bootstrap.in_process()) {
    return tcp::make_network(bootstrap, settings, deadline);
  }
  auto options = shm::ShmOptions::from(settings);
  options.polled = true;
  const std::vector<std::string> one_host(static_cast<std::size_t>(bootstrap.size()), "network");
  std::shared_ptr<shm::HostArena> arena;  // apart from that of the ranks which share memory
  return shm::connect(bootstrap, "threads", one_host, arena, options, deadline).transport;
}

}  // namespace bluefog
