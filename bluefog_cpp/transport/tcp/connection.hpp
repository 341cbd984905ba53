#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/transport/tcp/fork_closed.hpp"
#include "bluefog_cpp/transport/tcp/readiness.hpp"
#include "bluefog_cpp/transport/tcp/streams/incoming_stream.hpp"
#include "bluefog_cpp/transport/tcp/streams/outgoing_stream.hpp"

namespace bluefog::tcp {

/// One connection to another rank, for one lane or for control, with what is under way on it.
///
/// Used under the transport's mutex.
struct Connection {
  enum class State : std::uint8_t {
    Idle,   ///< nobody has called
    Asked,  ///< one of the two ranks has called
    Open,
    Over,  ///< nothing comes any more
  };

  Connection(BlockPool& pool, int peer, std::size_t its_channel)
      : rank(peer), channel(its_channel), in(pool, peer) {}

  /// Registers with the readiness which events are wanted now.
  void update_events(Readiness& readiness, bool wants_more) noexcept {
    if (state != State::Open) {
      return;
    }
    const std::uint32_t wanted =
        (wants_more ? EPOLLIN | EPOLLRDHUP : 0U) | (out.is_full() ? EPOLLOUT : 0U);
    if (wanted != events) {
      events = wanted;
      readiness.change(socket.get(), events, this);
    }
  }

  int rank;
  std::size_t channel;
  State state = State::Idle;
  shm::UniqueFd socket{};
  ForkClosed closed_in_forks{};
  std::uint32_t events = 0;
  IncomingStream in;
  OutgoingStream out{};
  /// Why it broke; empty where it ended in good order, or lives.
  std::string failure{};
  /// When something was sent last, in ticks.
  std::uint64_t last_sent = 0;
};

}  // namespace bluefog::tcp
