#include "bluefog_cpp/transport/fd_channel.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw TransportError(fmt::format("shared memory set-up: {} failed: {}", what, reason_of(errno)));
}

/// Address in the abstract namespace: it starts with a zero byte.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

uid_t user_behind(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    throw_errno("SO_PEERCRED");
  }
  return peer.uid;
}

/// Room for the ancillary data of one descriptor.
struct DescriptorSpace {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

}  // namespace

Token random_token() {
  Token token{};
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw_errno("getrandom");
  }
  return token;
}

UniqueFd make_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) {
    throw_errno("socket");
  }
  return fd;
}

FdListener FdListener::open(int backlog) {
  std::string name = "bluefog-";
  for (const std::byte b : random_token()) {
    name += fmt::format("{:02x}", static_cast<unsigned>(b));
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    throw_errno("socket");
  }
  const auto [address, length] = address_of(name);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    throw_errno("bind");
  }
  if (::listen(fd.get(), std::max(backlog, 1)) != 0) {
    throw_errno("listen");
  }
  return {std::move(fd), std::move(name)};
}

UniqueFd FdListener::accept() const {
  constexpr int kMostStrangers = 64;  // the caller has others to look after
  for (int tries = 0; tries < kMostStrangers; ++tries) {
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd && user_behind(fd.get()) == ::geteuid()) {
      return fd;
    }
    if (!fd && errno != EINTR && errno != ECONNABORTED) {
      if (errno == EAGAIN) {
        return {};
      }
      throw_errno("accept");
    }
  }
  return {};
}

void connect_to(int socket, const std::string& listener_name, Deadline deadline) {
  // A full queue of the listener holds up a connection: for this long at once.
  const timeval longest{.tv_sec = 0, .tv_usec = 50'000};
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof(longest)) != 0) {
    throw_errno("SO_SNDTIMEO");
  }
  const auto [address, length] = address_of(listener_name);
  while (::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      throw_errno("connect");
    }
    if (deadline.expired()) {
      throw TimeoutError(
          "shared memory set-up: no place in the listener's queue before the deadline");
    }
  }
  if (const uid_t user = user_behind(socket); user != ::geteuid()) {
    throw TransportError(
        fmt::format("shared memory set-up: expected a process of user {}, found one of user {}",
                    ::geteuid(), user));
  }
}

bool send_greeting(int socket, const Greeting& greeting, int fd) {
  Greeting copy = greeting;
  iovec part{.iov_base = &copy, .iov_len = sizeof(copy)};
  DescriptorSpace space;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = space.bytes.data();
    message.msg_controllen = space.bytes.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  ssize_t sent = 0;
  do {  // a few bytes find room in an empty buffer at once
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
    return false;
  }
  if (sent != static_cast<ssize_t>(sizeof(copy))) {
    throw_errno("sendmsg");
  }
  return true;
}

GreetingReader::State GreetingReader::read(int socket) {
  iovec part{.iov_base = reinterpret_cast<std::byte*>(&greeting_) + have_,
             .iov_len = sizeof(greeting_) - have_};
  DescriptorSpace space;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space.bytes.data();
  message.msg_controllen = space.bytes.size();
  const ssize_t received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received < 0) {
    if (errno == EAGAIN || errno == EINTR) {
      return State::Partial;
    }
    if (errno == ECONNRESET) {
      return State::Closed;
    }
    throw_errno("recvmsg");
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
      fd_ = UniqueFd(fd);
    }
  }
  has_lost_fd_ |= (message.msg_flags & MSG_CTRUNC) != 0;
  if (received == 0) {
    return State::Closed;
  }
  have_ += static_cast<std::size_t>(received);
  return have_ == sizeof(greeting_) ? State::Whole : State::Partial;
}

UniqueFd GreetingReader::take_fd() {
  if (!fd_) {
    throw TransportError(
        fmt::format("shared memory set-up: a greeting came without its descriptor{}",
                    has_lost_fd_ ? ": " + reason_of(EMFILE) : ""));
  }
  return std::move(fd_);
}

}  // namespace bluefog::shm
