#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "bluefog_cpp/transport/tcp/connection_table.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::tcp {

/// Sends this rank's messages, and knows which ones of its deep lane their readers have not taken.
///
/// Payload goes from the caller's memory into the sockets as far as these take it. A message of the
/// lane `Deep` waits until its readers have taken the last one of its name, and then for nobody:
/// bytes that find no room are copied once for all readers. Used under the transport's mutex.
class Publisher {
 public:
  explicit Publisher(ConnectionTable& table);

  /// Does the work of `Transport::publish`.
  bool publish(Departure& departure);
  /// Does the work of `Transport::abort`.
  void abort(Departure& departure, std::string_view reason);
  /// The rank has taken so many messages of the deep lane since the start.
  void note_receipt(int rank, std::uint64_t taken);

 private:
  /// A message whose reader has not said yet that it took it.
  struct Untaken {
    CallId id{};
    std::uint32_t name_hash = 0;
  };
  struct Reader {
    std::deque<Untaken> untaken{};
    std::uint64_t taken = 0;
  };

  [[nodiscard]] Reader& reader(int rank) noexcept {
    return readers_[static_cast<std::size_t>(rank)];
  }
  bool publish_ordinary(Departure& departure);
  bool publish_deep(Departure& departure);
  [[nodiscard]] bool all_have_room(const Departure& departure);
  [[nodiscard]] bool is_held_back(const Departure& departure);
  void begin(Departure& departure);
  /// The connection on which the rest of the message goes to the reader; null where none does.
  [[nodiscard]] Connection* under_way(const Departure& departure, int reader) const;
  void stage_rest(const Departure& departure, std::size_t end);
  void note_sent(const Departure& departure);

  ConnectionTable& table_;
  std::vector<Reader> readers_;
};

}  // namespace bluefog::tcp
