#include "bluefog_cpp/transport/host_sharing.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <utility>

#include "bluefog_cpp/transport/shm/share_regions.hpp"

namespace bluefog::shm {

std::string detect_host_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  // Sockets of the abstract namespace do not reach into another network namespace.
  std::array<char, 64> link{};
  const ssize_t length = ::readlink("/proc/self/ns/net", link.data(), link.size() - 1);
  if (length > 0) {
    id += ':';
    id.append(link.data(), static_cast<std::size_t>(length));
  }
  return id;
}

ConnectResult connect(Bootstrap& bootstrap, std::string_view name,
                      const std::vector<std::string>& host_ids, const ShmOptions& options,
                      Deadline deadline) {
  const std::string& own_host = host_ids[static_cast<std::size_t>(bootstrap.rank())];
  const auto local_size = static_cast<std::size_t>(std::ranges::count(host_ids, own_host));
  HostRegions regions = share_regions(
      bootstrap, host_ids,
      [&] {
        auto region = SharedRegion::create(ShmTransport::region_bytes(local_size, options));
        ShmTransport::initialize(*region, local_size, options);
        return region;
      },
      deadline);
  ConnectResult result;
  if (!regions.peers.empty()) {
    try {
      result.transport = std::make_unique<ShmTransport>(
          name, bootstrap.size(), std::move(regions.peers), regions.own, options);
    } catch (const std::exception& e) {
      regions.error = e.what();
    }
  }
  result.errors = gather_errors(bootstrap, regions.error, deadline);
  for (std::size_t r = 0; r < host_ids.size(); ++r) {
    if (host_ids[r] == own_host && !result.errors[r].empty()) {
      result.transport.reset();
    }
  }
  return result;
}

}  // namespace bluefog::shm
