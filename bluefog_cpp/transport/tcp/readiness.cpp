#include "bluefog_cpp/transport/tcp/readiness.hpp"

#include <fmt/format.h>

#include <cerrno>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::tcp {
namespace {

shm::UniqueFd make_epoll() {
  shm::UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd) {
    throw TransportError(fmt::format("TCP transport: epoll_create1: {}", reason_of(errno)));
  }
  return fd;
}

}  // namespace

Readiness::Readiness() : sockets_(make_epoll()), guard_(make_epoll()) {
  epoll_event event{};
  if (::epoll_ctl(guard_.get(), EPOLL_CTL_ADD, sockets_.get(), &event) != 0) {
    throw TransportError(fmt::format("TCP transport: epoll_ctl: {}", reason_of(errno)));
  }
}

void Readiness::add(int socket, std::uint32_t events, void* owner) {
  epoll_event event{.events = events, .data = {.ptr = owner}};
  if (::epoll_ctl(sockets_.get(), EPOLL_CTL_ADD, socket, &event) != 0) {
    throw TransportError(fmt::format("TCP transport: epoll_ctl: {}", reason_of(errno)));
  }
}

void Readiness::change(int socket, std::uint32_t events, void* owner) noexcept {
  epoll_event event{.events = events, .data = {.ptr = owner}};
  ::epoll_ctl(sockets_.get(), EPOLL_CTL_MOD, socket, &event);
}

void Readiness::remove(int socket) noexcept {
  epoll_event event{};
  ::epoll_ctl(sockets_.get(), EPOLL_CTL_DEL, socket, &event);
}

std::span<const epoll_event> Readiness::look(std::span<epoll_event> room) const noexcept {
  const int count = ::epoll_wait(sockets_.get(), room.data(), static_cast<int>(room.size()), 0);
  return room.first(count > 0 ? static_cast<std::size_t>(count) : 0);
}

void Readiness::set_guard(std::uint32_t events) noexcept {
  epoll_event event{.events = events, .data = {}};
  ::epoll_ctl(guard_.get(), EPOLL_CTL_MOD, sockets_.get(), &event);
}

void Readiness::take() noexcept {
  epoll_event event{};
  ::epoll_wait(guard_.get(), &event, 1, 0);
}

}  // namespace bluefog::tcp
