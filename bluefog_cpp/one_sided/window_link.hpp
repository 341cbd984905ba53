#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bluefog_cpp/one_sided/window_message.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// The messages about windows between this rank and one other: each a head, then its payload.
///
/// Payloads are sent from where they lie and received where they belong. Requests for values have a
/// lane of their own, on which no payload goes before them: two ranks that read each other's windows
/// would take turns. All else is taken in the order in which it was posted: an `Unlock` behind what
/// was written under the mutex, and behind its `Lock`, which it may take back. Not thread-safe.
class WindowLink {
 public:
  /// One message on its way out.
  struct Parcel {
    WindowMessage head{};
    std::span<const std::byte> payload{};
    /// Keeps the payload of answers in place.
    std::shared_ptr<WindowTarget> owner{};
    /// The request that this sends; null for answers.
    const void* request = nullptr;
    /// The payload, once its owner has gone, or where the owner keeps none in place.
    std::vector<std::byte> copy{};
  };
  struct Ends {
    /// The memory for the payload of an answer; empty where nobody waits for one of that size.
    std::function<std::span<std::byte>(const WindowMessage&)> room;
    /// Takes a message whose payload is there.
    std::function<void(const WindowMessage&, std::span<const std::byte> payload)> serve;
  };

  /// @param network outlives this, or is not used any more. @param own this rank, for messages.
  WindowLink(Transport& network, int own, int peer, Ends ends);
  WindowLink(const WindowLink&) = delete;
  WindowLink& operator=(const WindowLink&) = delete;

  /// Puts a message behind those that wait.
  void post(Parcel parcel);
  /// Sends as far as the network takes it. @return whether anything moved. @throws PeerFailure.
  bool send();
  /// Receives and serves. @return whether anything moved. @throws PeerFailure; InternalError.
  bool receive();

  [[nodiscard]] bool has_posted() const noexcept;
  /// Whether nothing is under way in either direction.
  [[nodiscard]] bool is_quiet() const noexcept;

  /// Copies the payloads that `target` keeps: it goes.
  void copy_payloads_of(const std::shared_ptr<WindowTarget>& target);
  /// Lets go of the memory of a request: takes it back or, where it has begun, copies the rest,
  /// which the peer waits for.
  void let_go_of(const void* request);
  /// Sends nothing of what waits.
  void drop_posted() noexcept;

 private:
  struct Outgoing {
    Parcel parcel{};
    std::optional<Departure> departure{};
    bool head_is_out = false;
  };

  /// The messages of a lane, in both directions.
  struct Stream {
    Lane lane;
    std::deque<Outgoing> out{};
    std::uint64_t next_message = 1;
    /// The message that comes in, as soon as its head is there.
    std::optional<WindowMessage> message{};
    std::array<std::byte, sizeof(WindowMessage)> head{};
    std::size_t used = 0;
  };

  static void copy_payload(Outgoing& out);
  bool send(Stream& stream);
  bool send_part(Stream& stream, Outgoing& out, std::span<const std::byte> bytes);
  bool receive(Stream& stream);
  /// @return whether all of a message has come into `room`.
  bool take(Stream& stream, std::span<std::byte> room);

  Transport& network_;
  int own_;
  int peer_;
  Ends ends_;
  std::array<WeightedRank, 1> reader_;
  /// Requests for values go first.
  std::array<Stream, 2> streams_{{{.lane = Lane::Deep}, {.lane = Lane::Ordinary}}};
  std::vector<std::byte> payload_;
};

}  // namespace bluefog
