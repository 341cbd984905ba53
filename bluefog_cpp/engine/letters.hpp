#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// The address of a message between two ranks: what its sending and its receipt have in common,
/// besides the ranks.
struct Letter {
  /// "tag 7"; travels as the message's name.
  std::string tag{};
  bool is_received = false;
  /// The number among the messages of that tag in that direction, which goes round.
  std::uint16_t sequence = 0;
};

/// The mail of one context: messages that a rank sends and another one receives, in the order of
/// their tag and not in that of other calls.
///
/// A stream brings all messages of a rank in the order of their sending. One whose receipt has not
/// been asked for yet stays where it is until a receipt behind it is; then it is kept here. Used
/// under the engine's mutex.
class Letters {
 public:
  Letters(int rank, int size) : rank_(rank), peers_(static_cast<std::size_t>(size)) {}

  /// Counts a message to `partner`, or a receipt from it, and gives it its sequence.
  /// @return the number of its call.
  [[nodiscard]] std::uint64_t take_number(int partner, Letter& letter);

  /// A message that has been kept.
  struct Kept {
    MessageHeader header{};
    /// The memory of the header's name.
    std::string tag{};
    std::vector<std::byte> bytes{};
    bool is_whole = false;
    /// Why its sender ended it before all of it came.
    std::optional<std::string> abort_reason{};
  };

  enum class State : std::uint8_t {
    NotHere,
    /// It is the next message of the transport.
    Next,
    /// It is among those kept, whole.
    Kept,
    /// A later one of its tag came first: it never will.
    LeftOut,
  };
  struct Found {
    State state = State::NotHere;
    const Kept* kept = nullptr;
  };
  /// Looks for the message of a receipt from `source`, and keeps those that stand before it.
  [[nodiscard]] Found look_for(Transport& transport, int source, const Letter& receipt);

  /// The receipt has taken its message.
  void close(int source, const Letter& receipt);
  /// The receipt has failed: its message is dropped, whenever it comes.
  void give_up(int source, const Letter& receipt);

 private:
  using Address = std::pair<std::string, std::uint16_t>;

  struct Peer {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    /// The last sequence by tag.
    std::map<std::string, std::uint16_t, std::less<>> sent_of_tag{};
    std::map<std::string, std::uint16_t, std::less<>> received_of_tag{};
    /// Receipts that have not ended.
    std::vector<const Letter*> open{};
    std::vector<Address> given_up{};
    /// By arrival; only the last one may be not whole. Their places stay.
    std::list<Kept> kept{};
  };

  [[nodiscard]] static bool fits(const MessageHeader& header, const Letter& receipt) {
    return header.id.step() == receipt.sequence && header.envelope.name == receipt.tag;
  }
  /// Takes the next message off the stream, into `kept` where it is not null.
  /// @return whether all of it has come.
  static bool take_off(Transport& transport, int source, Kept* kept);
  bool keep(Transport& transport, int source, Peer& peer, const MessageHeader& header);

  int rank_;
  std::vector<Peer> peers_;
};

}  // namespace bluefog
