#pragma once

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bluefog::tcp {

using Address = boost::asio::ip::address;
using Endpoint = boost::asio::ip::tcp::endpoint;

/// The ports that a rank may listen on; 0 to 0: any.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

/// An address of this host.
struct LocalAddress {
  std::string interface;
  Address address{};
  /// Bits of it that name the network.
  int prefix = 0;
  [[nodiscard]] bool is_near(const Address& other) const;
};

/// The addresses of this host's interfaces that are up, without those of one link alone.
/// @throws TransportError.
[[nodiscard]] std::vector<LocalAddress> local_addresses();

/// The addresses that `choice` names: an interface, or one of its addresses. Empty chooses nothing:
/// the rank then listens on all.
/// @throws InvalidArgument that says which there are.
[[nodiscard]] std::vector<Address> chosen_addresses(std::string_view choice,
                                                    const std::vector<LocalAddress>& local);

/// The endpoints at which another rank may be reached, best first. @param is_here it is on this
/// host.
[[nodiscard]] std::vector<Endpoint> reachable(std::vector<Endpoint> endpoints,
                                              const std::vector<LocalAddress>& local, bool is_here);

/// "198.18.0.1:4711", "[fd00::1]:4711", and back. @throws InternalError.
[[nodiscard]] std::string to_text(const Endpoint& endpoint);
[[nodiscard]] Endpoint endpoint_of(std::string_view text);

}  // namespace bluefog::tcp
