#include "bluefog_cpp/transport/host_sharing.hpp"

#include <unistd.h>

#include <array>
#include <fstream>
#include <utility>

#include "bluefog_cpp/base/system_limits.hpp"

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
                      const std::vector<std::string>& host_ids, std::shared_ptr<HostArena>& arena,
                      const ShmOptions& options, Deadline deadline) {
  raise_descriptor_limit();
  FormedGroup formed = form_group(bootstrap, host_ids, arena, options.shape(), deadline);
  ConnectResult result{.errors = std::move(formed.errors)};
  if (formed.group) {
    result.transport =
        std::make_unique<ShmTransport>(name, bootstrap.size(), std::move(formed.group), options);
  }
  return result;
}

}  // namespace bluefog::shm
