#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "bluefog_cpp/one_sided/window_message.hpp"

namespace bluefog {

/// The requests of this rank that wait for an answer. Each belongs to the thread that waits;
/// answers find it by its number. Not thread-safe.
class WindowRequests {
 public:
  struct Request {
    int peer = 0;
    /// The memory for the answer's payload.
    std::span<std::byte> room{};
    std::uint64_t ticket = 0;
    /// The rank that holds the mutex that was asked for, or -1.
    int holder = -1;
    std::optional<WindowMessage> answer{};
  };

  /// Numbers the request, which stays where it is until `close`.
  void open(Request& request) {
    request.ticket = next_ticket_++;
    requests_[request.ticket] = &request;
  }
  /// The request's memory is not written any more.
  void close(const Request& request) { requests_.erase(request.ticket); }
  [[nodiscard]] bool empty() const noexcept { return requests_.empty(); }

  /// Whether messages of this kind go to a rank that has asked.
  [[nodiscard]] static bool is_for_asker(WindowMessage::Kind kind) noexcept;
  /// The memory for the payload of that message; empty where nobody waits for one of its size.
  [[nodiscard]] std::span<std::byte> room_for(const WindowMessage& message) const;
  /// Takes a message to this rank. @return whether it answers a request that still waits.
  bool take(const WindowMessage& message);
  /// Answers all requests to `peer` that have none with `Failed`.
  void fail(int peer, std::string_view reason);

 private:
  std::map<std::uint64_t, Request*> requests_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace bluefog
