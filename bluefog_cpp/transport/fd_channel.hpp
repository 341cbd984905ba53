#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bluefog_cpp/base/unique_fd.hpp"
#include "bluefog_cpp/deadline.hpp"

namespace bluefog::shm {

/// The message with which a rank sends its region to another rank of its host.
struct Greeting {
  std::int32_t rank = 0;
  /// Proves that the peer knows what only ranks of this job were told.
  std::array<std::byte, 16> token{};
};

/// A listening socket in the abstract namespace, under a name that nobody can guess: it leaves no
/// file behind.
class FdListener {
 public:
  /// @throws TransportError.
  static FdListener open(int backlog);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Next connection, of a process of the same user. @throws TransportError, TimeoutError.
  [[nodiscard]] UniqueFd accept(Deadline deadline) const;

 private:
  FdListener(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  UniqueFd fd_;
  std::string name_;
};

/// Connects to a listener of this host. @throws TransportError.
[[nodiscard]] UniqueFd connect_to(const std::string& listener_name);

/// Sends a greeting with a file descriptor. @throws TransportError.
void send_greeting(int socket, const Greeting& greeting, int fd);

/// Receives a greeting with a file descriptor. @throws TransportError, TimeoutError.
[[nodiscard]] UniqueFd receive_greeting(int socket, Greeting& greeting, Deadline deadline);

/// Random bytes of the system.
[[nodiscard]] std::array<std::byte, 16> random_token();

}  // namespace bluefog::shm
