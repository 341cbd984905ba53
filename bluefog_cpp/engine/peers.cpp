#include "bluefog_cpp/engine/peers.hpp"

#include <algorithm>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

Peers::Peers(int rank, int size, std::vector<std::unique_ptr<Transport>> transports, Routes routes)
    : rank_(rank), size_(size), transports_(std::move(transports)), routes_(std::move(routes)) {}

bool Peers::needs_polling() const noexcept {
  return std::ranges::any_of(transports_,
                             [](const auto& transport) { return transport->needs_polling(); });
}

bool Peers::has_pending() const {
  return std::ranges::any_of(transports_,
                             [](const auto& transport) { return transport->has_pending(); });
}

void Peers::report(CallKey call, std::string_view reason, ControlMessage::Kind kind) {
  const ControlMessage message{.kind = kind, .call = call.call, .text = std::string(reason)};
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && (call.partner < 0 || call.partner == peer)) {
      route_to(peer)->send_control(peer, message);
    }
  }
}

std::optional<std::string> Peers::cause_of_death(int peer) const {
  Transport* const route = route_to(peer);
  return route == nullptr ? std::nullopt : route->cause_of_death(peer);
}

bool Peers::has_died(int peer) const {
  Transport* const route = route_to(peer);
  return route != nullptr && route->has_died(peer);
}

bool Peers::has_dead_peer() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (has_died(peer)) {
      return true;
    }
  }
  return false;
}

Transport::SeenCall Peers::latest_call(int peer) const {
  Transport* const route = route_to(peer);
  if (route == nullptr) {
    return {};
  }
  try {                        // nobody may have looked, in a context that makes no call now
    constexpr int kLooks = 3;  // the first one may only post a receive
    for (int look = 0; look < kLooks; ++look) {
      for (const Lane lane : {Lane::Ordinary, Lane::Deep}) {
        (void)route->arrived(peer, lane);
      }
      (void)route->progress();
    }
  } catch (const Error&) {
    return {};  // calls of that context will say it
  }
  return route->last_call(peer);
}

void Peers::close() noexcept {
  std::ranges::fill(routes_, nullptr);
  while (!transports_.empty()) {
    transports_.pop_back();  // the first one has the bell that others may ring
  }
}

}  // namespace bluefog
