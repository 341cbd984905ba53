#include "tools/bfrun/job/rank_line.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "tools/bfrun/job/pipe.hpp"

namespace bluefog::bfrun {
namespace {

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

/// A name in the abstract namespace: it begins with a zero byte.
Address address_of(std::string_view key) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::string name = fmt::format("bluefog-bfrun-{}", key);
  const std::size_t count = std::min(name.size(), sizeof address.name.sun_path - 1);
  std::memcpy(address.name.sun_path + 1, name.data(), count);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return address;
}

const sockaddr* as_sockaddr(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.name);
}

/// This machine since its start, and the network namespace, which abstract names belong to; empty
/// where the system does not tell.
std::string this_place() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/net", space.data(), space.size());
  if (boot.empty() || length <= 0) {
    return {};
  }
  return fmt::format("{}/{}", boot,
                     std::string_view(space.data(), static_cast<std::size_t>(length)));
}

/// Raises the limit of descriptors of this process, and of mpirun with it, where it is too low.
bool have_descriptors(int count) {
  const rlim_t wanted = static_cast<rlim_t>(count) + RankLine::kOtherDescriptors;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return false;
  }
  if (limit.rlim_cur >= wanted) {
    return true;
  }
  if (limit.rlim_max < wanted) {
    return false;
  }
  limit.rlim_cur = wanted;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

bool watch(const Descriptor& events, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  return epoll_ctl(events.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace

RankLine::RankLine(std::string key, int descriptors) : key_(std::move(key)) {
  const std::string place = this_place();
  if (place.empty() || !have_descriptors(descriptors)) {
    return;
  }
  Descriptor events(epoll_create1(EPOLL_CLOEXEC));
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address address = address_of(key_);
  if (bind(socket.get(), as_sockaddr(address), address.length) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0 || !watch(events, socket.get())) {
    return;
  }
  place_ = place;
  events_ = std::move(events);
  socket_ = std::move(socket);
}

void RankLine::serve(const Listener& listener) {
  std::array<epoll_event, 64> ready{};
  const auto wait = [&] {
    return epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  };
  for (int count = wait(); count > 0; count = wait()) {
    for (int k = 0; k < count; ++k) {
      const int descriptor = ready[static_cast<std::size_t>(k)].data.fd;
      if (descriptor == socket_.get()) {
        accept_watchers();
      } else if (const auto found = watchers_.find(descriptor);
                 found != watchers_.end() && !hear(found->second, listener)) {
        const int rank = found->second.rank;
        watchers_.erase(found);
        if (rank >= 0) {
          listener.on_end(rank);
        }
      }
    }
  }
}

void RankLine::accept_watchers() {
  while (true) {
    Descriptor socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) {
        continue;
      }
      // To ask again would never end, and a job whose ranks are not heard has none.
      if (errno != EAGAIN) {
        fail("accept of a rank's watcher");
      }
      return;
    }
    const int descriptor = socket.get();
    if (is_own_user(descriptor) && watch(events_, descriptor)) {
      watchers_[descriptor] = Watcher{.socket = std::move(socket)};
    }
  }
}

bool RankLine::hear(Watcher& watcher, const Listener& listener) const {
  std::array<char, 1024> packet{};
  while (true) {
    const ssize_t count = recv(watcher.socket.get(), packet.data(), packet.size(), 0);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return count < 0 && errno == EAGAIN;
    }
    ReportFilter filter(key_);
    static_cast<void>(
        filter.feed(std::string_view(packet.data(), static_cast<std::size_t>(count))));
    for (RankReport& report : filter.take_reports()) {
      report.came_by_line = true;
      watcher.rank = report.rank;
      listener.on_report(report);
    }
  }
}

RankLineEnd::RankLineEnd(const std::string& place, std::string_view key) {
  if (place.empty() || key.empty() || place != this_place()) {
    return;
  }
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) {
    return;
  }
  const Address address = address_of(key);
  int result = -1;
  do {
    result = connect(socket.get(), as_sockaddr(address), address.length);
  } while (result != 0 && errno == EINTR);
  state_ = result == 0 ? State::Connected : State::Orphaned;
  if (result == 0) {
    socket_ = std::move(socket);
  }
}

bool RankLineEnd::send(const RankReport& report, std::string_view key) const {
  const std::string bytes = encode(report, key);
  ssize_t count = -1;
  do {
    count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(bytes.size());
}

}  // namespace bluefog::bfrun
