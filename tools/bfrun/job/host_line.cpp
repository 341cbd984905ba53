#include "tools/bfrun/job/host_line.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "bluefog_cpp/base/equal_secrets.hpp"
#include "tools/bfrun/numbers.hpp"
#include "tools/bfrun/start/network.hpp"

namespace bluefog::bfrun {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::seconds;

constexpr std::size_t kGreetingBytes = 64;
constexpr std::size_t kAnswerBytes = 32;
constexpr std::size_t kHalfOfSecret = 16;
constexpr std::string_view kMark = "bfrun1 ";
/// In a greeting.
constexpr std::size_t kRankAt = kMark.size() + kHalfOfSecret + 1;
/// Who has connected and not greeted, at most.
constexpr std::ptrdiff_t kMostStrangers = 64;

/// The parts of the variable's text.
struct Place {
  seconds silence{0};
  int port = 0;
  std::string secret;
  std::vector<std::string> addresses;
};

std::string text_of(const Place& place) {
  std::string text = fmt::format("{},{},{}", place.silence.count(), place.port, place.secret);
  for (const auto& address : place.addresses) {
    text += "," + address;
  }
  return text;
}

std::optional<Place> parse_place(std::string_view text) {
  const auto words = split_list(std::string(text));
  if (words.size() < 4) {
    return std::nullopt;
  }
  const auto silence = parse_int(words[0]);
  const auto port = parse_int(words[1]);
  if (!silence || *silence < 1 || !port || *port < 1 || *port > 65535) {
    return std::nullopt;
  }
  return Place{seconds(*silence), *port, words[2], {words.begin() + 3, words.end()}};
}

template <std::size_t kBytes>
std::array<char, kBytes> padded(std::string_view text) {
  std::array<char, kBytes> bytes{};
  bytes.fill(' ');
  text.copy(bytes.data(), kBytes);
  return bytes;
}

/// One half of the secret shows who calls, the other who answers.
std::array<char, kGreetingBytes> greeting_of(std::string_view secret, int rank) {
  return padded<kGreetingBytes>(
      fmt::format("{}{} {}", kMark, secret.substr(0, kHalfOfSecret), rank));
}

std::array<char, kAnswerBytes> answer_of(std::string_view secret) {
  return padded<kAnswerBytes>(fmt::format("{}{}", kMark, secret.substr(kHalfOfSecret)));
}

/// Has the system ask the other one whether it is there while nothing is said, and break the
/// connection when it has answered nothing for `silence`.
void look_after(int socket, seconds silence) {
  constexpr int kAsks = 6;
  const auto total = static_cast<int>(silence.count());
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(total / 3, 1));
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(total / kAsks, 1));
  set(IPPROTO_TCP, TCP_KEEPCNT, kAsks);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, total * 1000);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

/// A socket that listens on all addresses: IPv6's takes those of IPv4 too, where the system has it.
Descriptor listen_anywhere() {
  constexpr int kFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Descriptor six(::socket(AF_INET6, kFlags, 0));
  const int off = 0;
  ::setsockopt(six.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::listen(six.get(), SOMAXCONN) == 0) {
    return six;  // the system binds it
  }
  Descriptor four(::socket(AF_INET, kFlags, 0));
  return ::listen(four.get(), SOMAXCONN) == 0 ? std::move(four) : Descriptor();
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return 0;
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

bool watch(const Descriptor& events, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  return ::epoll_ctl(events.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

/// One address that is tried.
struct Attempt {
  Attempt(asio::io_context& context, std::string_view secret, int rank)
      : socket(context), greeting(greeting_of(secret, rank)), wanted(answer_of(secret)) {}

  tcp::socket socket;
  std::array<char, kGreetingBytes> greeting;
  std::array<char, kAnswerBytes> wanted;
  std::array<char, kAnswerBytes> answer{};
};

/// Calls `on_answer` if bfrun answers there.
void try_at(const std::shared_ptr<Attempt>& attempt, const tcp::endpoint& endpoint,
            const std::function<void(tcp::socket&)>& on_answer) {
  attempt->socket.async_connect(endpoint, [attempt, on_answer](error_code failed) {
    if (failed) {
      return;
    }
    asio::write(attempt->socket, asio::buffer(attempt->greeting), failed);
    asio::async_read(attempt->socket, asio::buffer(attempt->answer),
                     [attempt, on_answer](error_code error, std::size_t) {
                       if (!error && equal_secrets(attempt->answer, attempt->wanted)) {
                         on_answer(attempt->socket);
                       }
                     });
  });
}

}  // namespace

HostLine::HostLine(const std::vector<std::string>& addresses, std::string secret, seconds silence)
    : silence_(silence), secret_(std::move(secret)) {
  if (addresses.empty() || silence <= seconds(0)) {
    return;
  }
  Descriptor events(::epoll_create1(EPOLL_CLOEXEC));
  Descriptor socket = listen_anywhere();
  const int port = port_of(socket.get());
  if (port == 0 || !watch(events, socket.get())) {
    return;
  }
  place_ = text_of({silence, port, secret_, addresses});
  events_ = std::move(events);
  socket_ = std::move(socket);
}

void HostLine::serve(const Listener& listener) {
  std::array<epoll_event, 64> ready{};
  const auto wait = [&] {
    return ::epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  };
  for (int count = wait(); count > 0; count = wait()) {
    for (int k = 0; k < count; ++k) {
      const int descriptor = ready[static_cast<std::size_t>(k)].data.fd;
      if (descriptor == socket_.get()) {
        accept_guests();
      } else if (const auto found = guests_.find(descriptor);
                 found != guests_.end() && !hear(found->second, listener)) {
        guests_.erase(found);
      }
    }
  }
}

void HostLine::accept_guests() {
  while (true) {
    Descriptor socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) {
        continue;
      }
      // No descriptor is left for another machine, which is not looked after then.
      if (errno != EAGAIN) {
        ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
      }
      return;
    }
    make_room();
    const int descriptor = socket.get();
    if (watch(events_, descriptor)) {
      guests_[descriptor].socket = std::move(socket);
    }
  }
}

/// Drops a stranger where there are too many.
void HostLine::make_room() {
  const auto is_stranger = [](const auto& guest) { return guest.second.rank < 0; };
  if (std::ranges::count_if(guests_, is_stranger) < kMostStrangers) {
    return;
  }
  guests_.erase(std::ranges::find_if(guests_, is_stranger));
}

bool HostLine::hear(Guest& guest, const Listener& listener) const {
  std::array<char, kGreetingBytes> bytes{};
  const std::size_t missing = kGreetingBytes - guest.greeting.size();
  const ssize_t count =
      ::recv(guest.socket.get(), bytes.data(), guest.rank < 0 ? missing : bytes.size(), 0);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
    return true;
  }
  if (guest.rank >= 0 && !guest.is_kept) {
    guest.is_kept = count > 0;
    return guest.is_kept;  // else the watcher has another one
  }
  if (guest.rank >= 0) {
    if (count < 0) {
      listener.on_lost(guest.rank,
                       errno == ETIMEDOUT
                           ? fmt::format("it has answered nothing for {} s", silence_.count())
                           : fmt::format("the connection to it broke ({})", strerror(errno)));
    } else if (count == 0) {
      listener.on_end(guest.rank);
    }
    return count > 0;  // nothing is said here after the greeting
  }
  if (count <= 0) {
    return false;
  }
  guest.greeting.append(bytes.data(), static_cast<std::size_t>(count));
  return guest.greeting.size() < kGreetingBytes || welcome(guest);
}

bool HostLine::welcome(Guest& guest) const {
  const std::string_view number = std::string_view(guest.greeting).substr(kRankAt);
  const int rank = parse_int(number.substr(0, number.find(' '))).value_or(-1);
  if (rank < 0 ||
      !equal_secrets(padded<kGreetingBytes>(guest.greeting), greeting_of(secret_, rank))) {
    return false;
  }
  const auto answer = answer_of(secret_);
  if (::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(answer.size())) {
    return false;
  }
  look_after(guest.socket.get(), silence_);
  guest.rank = rank;
  return true;
}

HostLineEnd::HostLineEnd(std::string_view place, int rank) {
  const auto known = parse_place(place);
  if (!known) {
    return;
  }
  try {
    asio::io_context context(1);
    const auto keep = [&](tcp::socket& socket) {
      error_code error;
      socket_ = Descriptor(socket.release(error));
      context.stop();
    };
    for (const auto& text : known->addresses) {
      error_code error;
      const auto address = asio::ip::make_address(text, error);
      if (error) {
        continue;
      }
      try_at(std::make_shared<Attempt>(context, known->secret, rank),
             tcp::endpoint(address, static_cast<std::uint16_t>(known->port)), keep);
    }
    context.run_for(kPatience);
  } catch (const boost::system::system_error&) {
    return;  // a system without room for it: nobody looks after this machine
  }
  if (socket_.get() < 0) {
    return;
  }
  constexpr char kKept = 'k';
  (void)::send(socket_.get(), &kKept, 1, MSG_NOSIGNAL);
  ::fcntl(socket_.get(), F_SETFD, FD_CLOEXEC);
  look_after(socket_.get(), known->silence);
}

}  // namespace bluefog::bfrun
