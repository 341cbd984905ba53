#include "bluefog_cpp/transport/tcp/addresses.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <set>
#include <span>

#include "bluefog_cpp/error.hpp"

namespace bluefog::tcp {
namespace {

namespace ip = boost::asio::ip;

Address address_of(const sockaddr& from) {
  if (from.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &from, sizeof v4);
    return ip::address_v4(ntohl(v4.sin_addr.s_addr));
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &from, sizeof v6);
  ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  return ip::address_v6(bytes, v6.sin6_scope_id);
}

std::vector<unsigned char> bytes_of(const Address& address) {
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    return {bytes.begin(), bytes.end()};
  }
  const auto bytes = address.to_v6().to_bytes();
  return {bytes.begin(), bytes.end()};
}

int prefix_of(const sockaddr* mask) {
  int bits = 0;
  for (const unsigned char byte :
       mask == nullptr ? std::vector<unsigned char>{} : bytes_of(address_of(*mask))) {
    bits += std::popcount(byte);
  }
  return bits;
}

// Such an address means something only together with an interface of the host that uses it.
bool is_of_one_link(const Address& address) {
  return address.is_v6() && address.to_v6().is_link_local();
}

}  // namespace

bool LocalAddress::is_near(const Address& other) const {
  if (address.is_v4() != other.is_v4()) {
    return false;
  }
  const auto own = bytes_of(address);
  const auto theirs = bytes_of(other);
  for (int bit = 0; bit < prefix; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    if (((own[byte] ^ theirs[byte]) >> (7 - bit % 8) & 1) != 0) {
      return false;
    }
  }
  return true;
}

std::vector<LocalAddress> local_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    throw TransportError(
        fmt::format("TCP transport: the host's addresses: {}", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, ::freeifaddrs);
  std::vector<LocalAddress> addresses;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const bool is_internet = one->ifa_addr != nullptr && (one->ifa_addr->sa_family == AF_INET ||
                                                          one->ifa_addr->sa_family == AF_INET6);
    if (!is_internet || (one->ifa_flags & IFF_UP) == 0U) {
      continue;
    }
    LocalAddress found{.interface = one->ifa_name,
                       .address = address_of(*one->ifa_addr),
                       .prefix = prefix_of(one->ifa_netmask)};
    if (!is_of_one_link(found.address)) {
      addresses.push_back(std::move(found));
    }
  }
  return addresses;
}

std::vector<Address> chosen_addresses(std::string_view choice,
                                      const std::vector<LocalAddress>& local) {
  std::vector<Address> chosen;
  if (choice.empty()) {
    return chosen;
  }
  boost::system::error_code no_address;
  const Address wanted = ip::make_address(choice, no_address);
  std::set<std::string> there;
  for (const LocalAddress& one : local) {
    if (one.interface == choice || (!no_address && one.address == wanted)) {
      chosen.push_back(one.address);
    }
    there.insert(fmt::format("{} ({})", one.interface, one.address.to_string()));
  }
  if (chosen.empty()) {
    throw InvalidArgument(fmt::format(
        "BLUEFOG_TCP_INTERFACE={}: expected an interface of this host that is up, or an address of "
        "one; there are {}",
        choice, fmt::join(there, ", ")));
  }
  return chosen;
}

std::vector<Endpoint> reachable(std::vector<Endpoint> endpoints,
                                const std::vector<LocalAddress>& local, bool is_here) {
  const auto is_own = [&](const Address& address) {
    return std::ranges::any_of(local, [&](const auto& one) { return one.address == address; });
  };
  // Bridges have the same address on every host: there it would lead back to this one.
  std::erase_if(endpoints, [&](const Endpoint& endpoint) {
    return !is_here && (endpoint.address().is_loopback() || is_own(endpoint.address()));
  });
  const auto distance = [&](const Endpoint& endpoint) {
    const Address address = endpoint.address();
    if (address.is_loopback()) {
      return 0;
    }
    const bool is_near =
        std::ranges::any_of(local, [&](const LocalAddress& one) { return one.is_near(address); });
    return is_near ? 1 : 2;
  };
  std::ranges::stable_sort(endpoints, {}, distance);
  return endpoints;
}

std::string to_text(const Endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v4() ? fmt::format("{}:{}", address, endpoint.port())
                                    : fmt::format("[{}]:{}", address, endpoint.port());
}

Endpoint endpoint_of(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  std::uint16_t port = 0;
  boost::system::error_code error = boost::asio::error::invalid_argument;
  Address address;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) {
      host = host.substr(1, host.size() - 2);
    }
    address = ip::make_address(host, error);
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  }
  if (error || port == 0) {
    throw InternalError(
        fmt::format("TCP transport: expected another rank's address and port, found '{}'", text));
  }
  return {address, port};
}

}  // namespace bluefog::tcp
