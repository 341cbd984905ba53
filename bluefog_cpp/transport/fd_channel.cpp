#include "bluefog_cpp/transport/fd_channel.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw TransportError(
      fmt::format("shared memory set-up: {} failed: {}", what, std::strerror(errno)));
}

UniqueFd make_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) {
    throw_errno("socket");
  }
  return fd;
}

/// Address in the abstract namespace: it starts with a zero byte.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

void check_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    throw_errno("SO_PEERCRED");
  }
  if (peer.uid != ::geteuid()) {
    throw TransportError(
        fmt::format("shared memory set-up: expected a process of user {}, found one of user {}",
                    ::geteuid(), peer.uid));
  }
}

void wait_readable(int fd, Deadline deadline, const char* what) {
  pollfd state{.fd = fd, .events = POLLIN, .revents = 0};
  while (true) {
    const int ready = ::poll(&state, 1, 50);
    if (ready > 0) {
      return;
    }
    if (ready < 0 && errno != EINTR) {
      throw_errno("poll");
    }
    if (deadline.expired()) {
      throw TimeoutError(fmt::format("shared memory set-up: no {} before the deadline", what));
    }
  }
}

}  // namespace

std::array<std::byte, 16> random_token() {
  std::array<std::byte, 16> token{};
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw_errno("getrandom");
  }
  return token;
}

FdListener FdListener::open(int backlog) {
  std::string name = "bluefog-";
  for (const std::byte b : random_token()) {
    name += fmt::format("{:02x}", static_cast<unsigned>(b));
  }
  UniqueFd fd = make_socket();
  const auto [address, length] = address_of(name);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    throw_errno("bind");
  }
  if (::listen(fd.get(), std::max(backlog, 1)) != 0) {
    throw_errno("listen");
  }
  return {std::move(fd), std::move(name)};
}

UniqueFd FdListener::accept(Deadline deadline) const {
  wait_readable(fd_.get(), deadline, "connection of another rank");
  UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd) {
    throw_errno("accept");
  }
  check_user(fd.get());
  return fd;
}

UniqueFd connect_to(const std::string& listener_name) {
  UniqueFd fd = make_socket();
  const auto [address, length] = address_of(listener_name);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    throw_errno("connect");
  }
  check_user(fd.get());
  return fd;
}

void send_greeting(int socket, const Greeting& greeting, int fd) {
  Greeting copy = greeting;
  iovec part{.iov_base = &copy, .iov_len = sizeof(copy)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(copy))) {
    throw_errno("sendmsg");
  }
}

UniqueFd receive_greeting(int socket, Greeting& greeting, Deadline deadline) {
  wait_readable(socket, deadline, "greeting of another rank");
  iovec part{.iov_base = &greeting, .iov_len = sizeof(greeting)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  if (received < 0) {
    throw_errno("recvmsg");
  }
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw TransportError("shared memory set-up: a greeting came without its file descriptor");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  UniqueFd owned(fd);
  if (received != static_cast<ssize_t>(sizeof(greeting))) {
    throw TransportError(
        fmt::format("shared memory set-up: expected a greeting of {} bytes, found {}",
                    sizeof(greeting), received));
  }
  return owned;
}

}  // namespace bluefog::shm
