#include "bluefog_cpp/transport/tcp/listening.hpp"

#include <fmt/format.h>

#include <boost/asio.hpp>
#include <cerrno>
#include <utility>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::tcp {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Listens on `endpoint`. @return the error, none where it does.
error_code try_listen(tcp::acceptor& acceptor, const Endpoint& endpoint) {
  error_code error;
  (void)acceptor.open(endpoint.protocol(), error);
  if (error) {
    return error;
  }
  keep_from_children(acceptor.native_handle());
  (void)acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (endpoint.address().is_v6()) {
    (void)acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
  }
  (void)acceptor.bind(endpoint, error);
  if (!error) {
    (void)acceptor.listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) {
    error_code ignored;
    (void)acceptor.close(ignored);
  }
  return error;
}

[[noreturn]] void refuse(const Address& address, PortRange ports, const error_code& error) {
  if (error == asio::error::address_in_use && ports.first != 0) {
    throw TransportError(fmt::format(
        "TCP transport: expected a free port from {} to {} (BLUEFOG_TCP_PORTS) on {}, all {} are "
        "taken",
        ports.first, ports.last, address.to_string(), ports.last - ports.first + 1));
  }
  throw TransportError(fmt::format("TCP transport: cannot listen on {}, ports {} to {}: {}",
                                   address.to_string(), ports.first, ports.last,
                                   reason_of(error.value())));
}

}  // namespace

std::deque<tcp::acceptor> listen(asio::io_context& io, const std::vector<Address>& addresses,
                                 PortRange ports) {
  std::deque<tcp::acceptor> acceptors;
  const auto listen_on = [&](const Address& address) {
    error_code error;
    for (int port = ports.first; port <= ports.last; ++port) {
      tcp::acceptor acceptor(io);
      error = try_listen(acceptor, Endpoint(address, static_cast<std::uint16_t>(port)));
      if (!error) {
        acceptors.push_back(std::move(acceptor));
        break;
      }
      if (error != asio::error::address_in_use) {
        break;
      }
    }
    return error;
  };
  const auto insist_on = [&](const Address& address) {
    if (const error_code error = listen_on(address)) {
      refuse(address, ports, error);
    }
  };
  for (const Address& address : addresses) {
    insist_on(address);
  }
  if (addresses.empty()) {
    // One socket takes both families, where the system has both.
    const Address everywhere = asio::ip::address_v6::any();
    if (const error_code error = listen_on(everywhere);
        error == asio::error::address_family_not_supported ||
        error == asio::error::no_protocol_option || error.value() == EADDRNOTAVAIL) {
      insist_on(asio::ip::address_v4::any());
    } else if (error) {
      refuse(everywhere, ports, error);
    }
  }
  return acceptors;
}

}  // namespace bluefog::tcp
