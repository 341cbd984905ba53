#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/tcp/addresses.hpp"
#include "bluefog_cpp/transport/tcp/greeting.hpp"

namespace bluefog::tcp {

/// Notified by the lobby's thread of what has become of connections.
class LobbyGuest {
 public:
  /// Another rank calls. @return the answer that it gets, or nothing: it is dropped as a stranger.
  [[nodiscard]] virtual std::optional<Answer::Verdict> on_call(int rank, std::size_t channel) = 0;
  /// Whether a connection that was called for is neither there nor given up.
  [[nodiscard]] virtual bool is_awaited(int rank, std::size_t channel) = 0;
  /// A connection is there, greeted on both sides.
  virtual void on_open(int rank, std::size_t channel, shm::UniqueFd socket) = 0;
  /// A call of this rank came to nothing.
  virtual void on_failed(int rank, std::size_t channel, const std::string& why) = 0;
  /// The descriptor that the lobby watches became readable.
  virtual void on_ready() = 0;
  /// A tick has passed.
  virtual void on_tick() = 0;

 protected:
  ~LobbyGuest() = default;
};

/// The place at which the ranks of a network call each other: it listens, greets, and calls, all on
/// a thread of its own.
///
/// Whoever connects without being a rank of the network (no greeting, half of one, another secret)
/// is dropped after a while, and holds up nobody.
class Lobby {
 public:
  struct Options {
    int rank = 0;
    Secret secret{};
    /// The endpoints of each rank, best first.
    std::vector<std::vector<Endpoint>> endpoints{};
    /// How long a call is tried, and its answer waited for.
    Deadline::Clock::duration patience = std::chrono::seconds(30);
    /// How long the host of a rank may answer nothing until it counts as gone.
    std::chrono::milliseconds silence = std::chrono::seconds(20);
    /// How long a stranger may take to greet.
    std::chrono::milliseconds greeting_limit = std::chrono::seconds(5);
    std::chrono::milliseconds tick = std::chrono::seconds(1);
    /// The descriptor that is watched for the guest.
    int watched = -1;
  };

  /// Strangers that have not greeted yet, at most; the oldest goes first.
  static constexpr std::size_t kMostStrangers = 256;

  /// Listens. @param addresses of this host; empty: all. @throws TransportError where the system
  /// refuses, or all ports are taken.
  Lobby(const std::vector<Address>& addresses, PortRange ports);
  ~Lobby();
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  /// The endpoints it listens on; an unspecified address stands for all of the host's.
  [[nodiscard]] std::vector<Endpoint> listening() const;

  /// Starts the thread. @param guest outlives it.
  void open(Options options, LobbyGuest& guest);
  /// Calls `rank`. Thread-safe; returns at once.
  void call(int rank, std::size_t channel);
  /// Takes no more calls. Thread-safe.
  void stop_listening();
  /// Ends the thread: the guest is notified of nothing any more.
  void close() noexcept;

 private:
  class Hall;
  std::shared_ptr<Hall> hall_;
};

}  // namespace bluefog::tcp
