#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/tcp/connection.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::tcp {

/// Another rank: the connections to it, and how it has gone.
///
/// A rank that closes its context says goodbye. The control connection ends without a goodbye
/// only where the process has ended; a lane's end is judged after a grace, in which a goodbye may
/// still come. Used under the transport's mutex.
class Peer {
 public:
  using Connections = std::array<std::unique_ptr<Connection>, kChannelCount>;

  [[nodiscard]] const Connections& connections() const noexcept { return connections_; }
  [[nodiscard]] Connection* find(std::size_t channel) const noexcept {
    return connections_[channel].get();
  }
  /// The connection, idle where it is new.
  Connection& make(BlockPool& pool, int rank, std::size_t channel);

  [[nodiscard]] bool has_left() const noexcept { return has_left_; }
  [[nodiscard]] bool has_failed() const noexcept { return !failure_.empty(); }
  [[nodiscard]] bool is_gone() const noexcept { return has_left() || has_failed(); }
  /// When its end has a name, why no message of it comes any more: it has failed, or has left and
  /// all that it had sent is here.
  [[nodiscard]] std::optional<std::string> cause_of_death() const;

  /// The rank says that nothing more is to come. Nothing is sent to it any more.
  void note_goodbye();
  /// The connection is over. @param error of the system, or 0: the other side has ended it.
  void note_end(const Connection& connection, int error);
  /// The rank counts as gone, unless it has gone before.
  void fail(const std::string& why);
  /// Takes a lane's end for the rank's, once the grace is over. @return whether a grace has ended
  /// with a failure, now or before.
  bool judge();

  /// When bytes have come from it last, in ticks.
  void note_heard(std::uint64_t tick) noexcept { last_heard_ = tick; }
  [[nodiscard]] std::uint64_t last_heard() const noexcept { return last_heard_; }
  void note_seen(const MessageHeader& header) noexcept {
    seen_ = {.call = header.id.call(), .kind = header.envelope.kind};
  }
  /// The last message of the rank that was looked at.
  [[nodiscard]] Transport::SeenCall seen() const noexcept { return seen_; }
  [[nodiscard]] std::string last_seen() const;

 private:
  /// A connection with the last messages of a rank that has left comes so long after its goodbye.
  static constexpr std::chrono::milliseconds kLateConnections{500};
  static constexpr std::chrono::milliseconds kGrace{500};

  Connections connections_{};
  bool has_left_ = false;
  std::optional<Deadline> said_all_at_{};
  /// Why the rank is gone without having left; empty while it is not.
  std::string failure_{};
  std::optional<Deadline> verdict_at_{};
  Transport::SeenCall seen_{};
  std::uint64_t last_heard_ = 0;
};

}  // namespace bluefog::tcp
