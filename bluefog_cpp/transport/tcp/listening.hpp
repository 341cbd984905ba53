#pragma once

#include <fcntl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <deque>
#include <vector>

#include "bluefog_cpp/transport/tcp/addresses.hpp"

namespace bluefog::tcp {

/// Sockets that listen on `addresses`, or on all of this host's where there are none.
/// @throws TransportError where the system refuses, or all ports are taken.
[[nodiscard]] std::deque<boost::asio::ip::tcp::acceptor> listen(
    boost::asio::io_context& io, const std::vector<Address>& addresses, PortRange ports);

/// Has `fd` closed in programs that this process starts.
inline void keep_from_children(int fd) noexcept { ::fcntl(fd, F_SETFD, FD_CLOEXEC); }

}  // namespace bluefog::tcp
