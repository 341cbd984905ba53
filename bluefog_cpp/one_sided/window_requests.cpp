#include "bluefog_cpp/one_sided/window_requests.hpp"

namespace bluefog {

bool WindowRequests::is_for_asker(WindowMessage::Kind kind) noexcept {
  return kind == WindowMessage::Kind::Done || kind == WindowMessage::Kind::Failed ||
         kind == WindowMessage::Kind::Gone || kind == WindowMessage::Kind::Held;
}

std::span<std::byte> WindowRequests::room_for(const WindowMessage& message) const {
  const auto found = requests_.find(message.ticket);
  const bool fits = message.kind == WindowMessage::Kind::Done && found != requests_.end() &&
                    found->second->room.size() == message.bytes;
  return fits ? found->second->room : std::span<std::byte>{};
}

bool WindowRequests::take(const WindowMessage& message) {
  const auto found = requests_.find(message.ticket);
  if (found == requests_.end()) {
    return false;
  }
  if (message.kind == WindowMessage::Kind::Held) {
    found->second->holder = message.holder;
    return false;
  }
  found->second->answer = message;
  return true;
}

void WindowRequests::fail(int peer, std::string_view reason) {
  for (const auto& [ticket, request] : requests_) {
    if (request->peer == peer && !request->answer) {
      WindowMessage& answer =
          request->answer.emplace(WindowMessage{.kind = WindowMessage::Kind::Failed});
      reason.copy(answer.text.data(), answer.text.size() - 1);
    }
  }
}

}  // namespace bluefog
