#include "tools/bfrun/start/network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>

#include "bluefog_cpp/base/system_limits.hpp"
#include "tools/bfrun/job/pipe.hpp"

namespace bluefog::bfrun {

ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (socket_.get() < 0) {
    if (is_out_of_descriptors(errno)) {
      fail("socket");
    }
    return;  // this machine has no IPv4
  }
  const int shares = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &shares, sizeof shares);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (bind(socket_.get(), generic, length) == 0 &&
      getsockname(socket_.get(), generic, &length) == 0) {
    number_ = ntohs(address.sin_port);
  }
}

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> entries;
  std::istringstream stream(list);
  for (std::string entry; std::getline(stream, entry, ',');) {
    entries.push_back(entry);
  }
  return entries;
}

bool has_interface(const std::string& name) { return if_nametoindex(name.c_str()) != 0; }

std::string interface_address(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return {};
  }
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || name != one->ifa_name) {
      continue;
    }
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
      found = text.data();
    }
  }
  freeifaddrs(all);
  return found;
}

std::vector<std::string> reachable_addresses(const std::vector<std::string>& interfaces) {
  std::vector<std::string> chosen;
  std::vector<std::string> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return {};
  }
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 ||
        (one->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    const bool is_six = one->ifa_addr->sa_family == AF_INET6;
    if (!is_six && one->ifa_addr->sa_family != AF_INET) {
      continue;
    }
    const auto* six = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
    if (is_six && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) {
      continue;
    }
    const void* const bytes = is_six
                                  ? static_cast<const void*>(&six->sin6_addr)
                                  : &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(one->ifa_addr->sa_family, bytes, text.data(), text.size());
    all.emplace_back(text.data());
    if (std::ranges::find(interfaces, one->ifa_name) != interfaces.end()) {
      chosen.emplace_back(text.data());
    }
  }
  freeifaddrs(list);
  return chosen.empty() ? all : chosen;
}

bool resolves_to_this_machine(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) {
    return false;
  }
  bool is_ours = false;
  for (const addrinfo* one = found; one != nullptr && !is_ours; one = one->ai_next) {
    // A socket can be bound to this machine's own addresses alone.
    const int probe = socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    is_ours = probe >= 0 && bind(probe, one->ai_addr, one->ai_addrlen) == 0;
    if (probe >= 0) {
      close(probe);
    }
  }
  freeaddrinfo(found);
  return is_ours;
}

}  // namespace bluefog::bfrun
