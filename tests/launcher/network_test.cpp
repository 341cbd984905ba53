#include "tools/bfrun/start/network.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "tools/bfrun/job/descriptor.hpp"

namespace bluefog::bfrun {
namespace {

/// 0, or the error with which somebody could not listen at `port`.
int listen_at(int port, bool shares, const Descriptor& socket) {
  const int value = shares ? 1 : 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &value, sizeof value);
  sockaddr_in6 address{};  // of IPv4 too
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<in_port_t>(port));
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return errno;
  }
  return listen(socket.get(), 1) == 0 ? 0 : errno;
}

TEST(ReservedPort, WhoKnowsItListensThereAndNobodyElse) {
  const ReservedPort port;
  ASSERT_GT(port.number(), 0);
  const Descriptor other(socket(AF_INET6, SOCK_STREAM, 0));
  if (other.get() < 0) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  EXPECT_EQ(listen_at(port.number(), /*shares=*/false, other), EADDRINUSE);
  const Descriptor store(socket(AF_INET6, SOCK_STREAM, 0));
  EXPECT_EQ(listen_at(port.number(), /*shares=*/true, store), 0);
}

TEST(ReservedPort, EachHasItsOwn) {
  const ReservedPort one;
  const ReservedPort other;
  EXPECT_NE(one.number(), other.number());
}

}  // namespace
}  // namespace bluefog::bfrun
