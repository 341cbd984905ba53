#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/tcp/connection_table.hpp"
#include "bluefog_cpp/transport/tcp/publisher.hpp"
#include "bluefog_cpp/transport/tcp/streams/word_reader.hpp"

namespace bluefog::tcp {

/// Reads the connections that have something, and takes in what other ranks say: control messages,
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
  void take_words(Connection& connection, std::span<const std::byte> bytes);
  void take_word(int rank, WordReader::Heard& word);

  ConnectionTable& table_;
  Publisher& publisher_;
  std::vector<std::byte> scratch_;
  /// The reader of each rank's words, from its first word on.
  std::vector<std::optional<WordReader>> readers_;
  std::deque<WordReader::Heard> heard_;
  std::deque<std::pair<int, ControlMessage>> controls_;
};

}  // namespace bluefog::tcp
