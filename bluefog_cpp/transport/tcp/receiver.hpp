#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/tcp/connection_table.hpp"
#include "bluefog_cpp/transport/tcp/publisher.hpp"
#include "bluefog_cpp/transport/tcp/streams/control_reader.hpp"

namespace bluefog::tcp {

/// Reads the connections that have something, and takes in their control frames: control messages,
/// receipts for the publisher, goodbyes.
///
/// Used under the transport's mutex.
class Receiver {
 public:
  Receiver(ConnectionTable& table, Publisher& publisher);

  /// Moves the bytes of all connections that are ready, in both directions. @return whether any
  /// did.
  bool pump();
  /// The oldest control message that nobody has taken.
  [[nodiscard]] std::optional<std::pair<int, ControlMessage>> next_control();

 private:
  /// The result of one receive; `wanted` bytes had room.
  struct Received {
    ssize_t bytes = 0;
    std::size_t wanted = 0;
  };

  bool read(Connection& connection);
  [[nodiscard]] Received receive(Connection& connection);
  void take_control(Connection& connection, std::span<const std::byte> bytes);
  void take_frame(int rank, ControlReader::Frame& frame);

  ConnectionTable& table_;
  Publisher& publisher_;
  std::vector<std::byte> scratch_;
  /// The reader of each rank's control frames, from the first one on.
  std::vector<std::optional<ControlReader>> readers_;
  std::deque<ControlReader::Frame> control_frames_;
  std::deque<std::pair<int, ControlMessage>> controls_;
};

}  // namespace bluefog::tcp
