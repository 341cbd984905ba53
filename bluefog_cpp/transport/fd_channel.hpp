#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/deadline.hpp"

namespace bluefog::shm {

/// Proves that a process knows what only ranks of this job were given.
using Token = std::array<std::byte, 16>;

/// Random bytes of the system.
[[nodiscard]] Token random_token();

/// The message by which ranks of a host know each other.
struct Greeting {
  std::int32_t rank = 0;
  Token token{};
};

/// A listening socket in the abstract namespace, under a name that nobody can guess: it leaves no
/// file behind. Every user of the machine sees the name while the socket lives, and may connect.
class FdListener {
 public:
  /// @throws TransportError.
  static FdListener open(int backlog);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// The next connection of a process of the same user; nothing where none is at hand. Other
  /// users' connections are closed. @throws TransportError.
  [[nodiscard]] UniqueFd accept() const;

 private:
  FdListener(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  UniqueFd fd_;
  std::string name_;
};

/// A socket to connect with. @throws TransportError.
[[nodiscard]] UniqueFd make_socket();

/// Connects to a listener of this host, of the same user. @throws TransportError, TimeoutError.
void connect_to(int socket, const std::string& listener_name, Deadline deadline);

/// Sends a greeting, with a descriptor where `fd` is one.
/// @return false where the other end is closed. @throws TransportError.
bool send_greeting(int socket, const Greeting& greeting, int fd = -1);

/// Takes a greeting as its bytes come: a peer that sends half of it holds up nobody.
class GreetingReader {
 public:
  enum class State : std::uint8_t { Partial, Whole, Closed };

  /// Takes what is there, and does not wait. @throws TransportError.
  State read(int socket);

  [[nodiscard]] const Greeting& greeting() const noexcept { return greeting_; }
  /// The descriptor that came along. @throws TransportError where the system could not take it.
  [[nodiscard]] UniqueFd take_fd();

 private:
  Greeting greeting_{};
  std::size_t have_ = 0;
  UniqueFd fd_{};
  bool has_lost_fd_ = false;
};

}  // namespace bluefog::shm
