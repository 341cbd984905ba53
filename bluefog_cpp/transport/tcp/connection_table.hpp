#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/transport/tcp/greeting.hpp"
#include "bluefog_cpp/transport/tcp/peer.hpp"
#include "bluefog_cpp/transport/tcp/readiness.hpp"

namespace bluefog::tcp {

struct TcpTransportOptions {
  /// Bytes that the system buffers on a connection, each way; 0: as many as it thinks right.
  int socket_bytes = 0;
  /// A host that answers nothing for so long is gone.
  std::chrono::milliseconds silence{20'000};
  /// A rank of which nothing has come for so long is gone; zero: none is for that.
  std::chrono::milliseconds heartbeat{0};
};

/// The connections of a rank to all others: one for each lane of a pair and one for control, each
/// made when one of the two ranks first uses it.
///
/// Used under the transport's mutex.
class ConnectionTable {
 public:
  /// Calls a rank, without waiting: `on_call` of its table, then `open` of both.
  using Call = std::function<void(int rank, std::size_t channel)>;

  ConnectionTable(int rank, std::size_t size, const TcpTransportOptions& options, Call call);

  [[nodiscard]] Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Peer& peer(int rank) const noexcept {
    return peers_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::span<Peer> peers() noexcept { return peers_; }
  [[nodiscard]] Connection* find(int rank, std::size_t channel) const noexcept {
    return peer(rank).find(channel);
  }
  [[nodiscard]] Readiness& readiness() noexcept { return readiness_; }
  [[nodiscard]] BlockPool& pool() noexcept { return pool_; }
  /// Whether there is such a connection.
  [[nodiscard]] bool any(const std::function<bool(const Connection&)>& is_so) const;

  /// The connection, which is called for where it is idle, as is the one for control.
  Connection& use(int rank, std::size_t channel);
  /// Another rank calls. @return its answer; nothing where the rank counts as a stranger.
  [[nodiscard]] std::optional<Answer::Verdict> on_call(int rank, std::size_t channel);
  /// A socket for a connection that was called for. @return whether the peer's state has changed.
  bool open(int rank, std::size_t channel, shm::UniqueFd socket);
  /// The connection is over: `error` of the system, or 0.
  void end(Connection& connection, int error);
  /// The rank counts as gone, and all connections to it are over.
  void break_off(int rank, const std::string& why);

  /// Sends what waits, and looks at what came of it. To be called when something was written.
  void note_sent(Connection& connection);
  /// Registers with the readiness what is wanted of a connection; due when something was read.
  void update_events(Connection& connection) noexcept {
    connection.update_events(readiness_, wants_more(connection));
  }
  /// Whether bytes are to be read, also such as nobody has asked for.
  [[nodiscard]] bool wants_more(const Connection& connection) const noexcept;
  void note_tick() noexcept { ++tick_; }
  /// Signs of life to all ranks that were sent nothing since the last tick, so that a host which is
  /// gone shows even where nothing else is sent.
  void send_signs_of_life();
  /// Bytes of a rank have come.
  void note_heard(int rank) noexcept { peer(rank).note_heard(tick_); }
  /// Breaks with ranks of which nothing has come for too long. @param tick between two ticks.
  /// @return whether there were some.
  bool break_with_the_silent(std::chrono::milliseconds tick);

  /// Takes no calls any more, and reads all there is.
  void set_leaving() noexcept { is_leaving_ = true; }
  [[nodiscard]] bool is_leaving() const noexcept { return is_leaving_; }
  void note_background() noexcept { has_background_ = true; }
  /// Whether bytes have to be moved also while no call waits: those of deep lanes, and outboxes.
  [[nodiscard]] bool has_background() const noexcept { return has_background_; }
  /// Looks whether outboxes that were full still are.
  void look_at_background();

 private:
  void set_options(const Connection& connection) const noexcept;
  [[nodiscard]] std::string words_of(const Connection& connection, int error) const;

  int rank_;
  TcpTransportOptions options_;
  Call call_;
  BlockPool pool_;
  Readiness readiness_;
  std::vector<Peer> peers_;
  bool has_background_ = false;
  bool has_deep_lanes_ = false;
  bool is_leaving_ = false;
  std::uint64_t tick_ = 0;
};

}  // namespace bluefog::tcp
