#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

#include "bluefog_cpp/base/files/unique_fd.hpp"

namespace bluefog::tcp {

/// The sockets of a network that have something to read, or room.
///
/// Whoever drives the transport looks at them. A thread may sleep on `guard` meanwhile, and is
/// woken for a socket only while the guard is armed: a thread that were woken for every packet
/// would take the core from the one that looks.
class Readiness {
 public:
  /// @throws TransportError.
  Readiness();

  /// Watches `socket`. @param events of epoll, or 0 for its end alone; `owner` comes with its
  /// events. @throws TransportError.
  void add(int socket, std::uint32_t events, void* owner);
  void change(int socket, std::uint32_t events, void* owner) noexcept;
  void remove(int socket) noexcept;

  /// The sockets that are ready now. Does not block.
  [[nodiscard]] std::span<const epoll_event> look(std::span<epoll_event> room) const noexcept;

  /// Becomes readable when a socket is ready while the guard is armed.
  [[nodiscard]] int guard() const noexcept { return guard_.get(); }
  /// Arms the guard for one event, for one that is there already too.
  void arm() noexcept { set_guard(EPOLLIN | EPOLLONESHOT); }
  void disarm() noexcept { set_guard(0); }
  /// Takes the guard's event: it is not armed any more.
  void take() noexcept;

 private:
  void set_guard(std::uint32_t events) noexcept;

  shm::UniqueFd sockets_;
  shm::UniqueFd guard_;
};

}  // namespace bluefog::tcp
