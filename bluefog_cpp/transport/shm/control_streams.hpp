#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/transport/shm/host_group.hpp"
#include "bluefog_cpp/transport/shm/region_layout.hpp"

namespace bluefog::shm {

/// The control messages between this rank and the others of a group, beside the streams of data.
///
/// Each ordered pair has a stream of a few entries, made with its first message; those that find
/// no room wait here. A bell counts the messages to a rank, so that one look shows whether any has
/// come.
class ControlStreams {
 public:
  /// @param group outlives this.
  explicit ControlStreams(const HostGroup& group) : group_(group), peers_(group.size()) {}

  /// Sends the message or lets it wait; drops it where too many wait. @param index in the group.
  void send(std::size_t index, const ControlMessage& message);
  /// Sends messages that wait, as far as there is room. @return whether any went.
  bool send_waiting();
  [[nodiscard]] bool has_waiting() const noexcept { return waiting_ > 0; }
  [[nodiscard]] bool has_waiting(std::size_t index) const noexcept {
    return !peers_[index].waiting.empty();
  }
  /// The next message that has come, with its sender's index.
  [[nodiscard]] std::optional<std::pair<std::size_t, ControlMessage>> poll() {
    const auto& bell = group_.head(group_.own()).control_bell;
    return bell.load(std::memory_order_seq_cst) == taken_ ? std::nullopt : next();
  }
  /// Sends nothing to that rank any more.
  void forget(std::size_t index) noexcept;

 private:
  struct Peer {
    /// The messages to that rank and from it; null before the first one.
    ControlStream* out = nullptr;
    ControlStream* in = nullptr;
    std::uint64_t written = 0;
    std::uint64_t read = 0;
    /// Messages that found no room.
    std::deque<ControlMessage> waiting{};
    bool is_gone = false;
  };

  /// @return false if there is no room.
  bool try_send(std::size_t index, const ControlMessage& message);
  [[nodiscard]] std::optional<std::pair<std::size_t, ControlMessage>> next();

  const HostGroup& group_;
  std::vector<Peer> peers_;
  std::uint64_t taken_ = 0;
  /// The number of messages that wait, to all ranks.
  std::size_t waiting_ = 0;
};

}  // namespace bluefog::shm
