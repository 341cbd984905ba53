#include "bluefog_cpp/transport/tcp/peer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace bluefog::tcp {

Connection& Peer::make(BlockPool& pool, int rank, std::size_t channel) {
  auto& connection = connections_[channel];
  if (!connection) {
    connection = std::make_unique<Connection>(pool, rank, channel);
  }
  return *connection;
}

void Peer::note_goodbye() {
  has_left_ = true;
  said_all_at_ = said_all_at_.value_or(Deadline::after(kLateConnections));
  for (const auto& connection : connections_) {
    if (connection) {
      connection->out.clear();
    }
  }
}

void Peer::note_end(const Connection& connection, int error) {
  if (is_gone() || connection.in.has_goodbye()) {
    return;
  }
  if (connection.channel != kControlChannel) {
    verdict_at_ = verdict_at_.value_or(Deadline::after(kGrace));
    return;
  }
  failure_ = error == 0 ? "its process has ended without closing its context"
                        : fmt::format("the connection to it broke: {}", connection.failure);
}

void Peer::fail(const std::string& why) {
  if (!is_gone()) {
    failure_ = why;
  }
}

bool Peer::judge() {
  if (verdict_at_ && !is_gone() && verdict_at_->expired()) {
    for (const auto& connection : connections_) {
      if (connection && !connection->failure.empty()) {
        failure_ =
            fmt::format("a connection to it broke without a goodbye: {}", connection->failure);
      }
    }
  }
  return verdict_at_ && has_failed();
}

std::string Peer::last_seen() const {
  if (seen_.call == 0) {
    return "no message of it has come yet";
  }
  return fmt::format("its last message here was of {}, {}", call_text(seen_.call),
                     text_of(seen_.kind));
}

std::optional<std::string> Peer::cause_of_death() const {
  if (has_failed()) {
    return fmt::format("{} ({})", failure_, last_seen());
  }
  // Messages that it sent before it left come first, as far as anybody asks for them.
  const bool has_said_all = std::ranges::all_of(connections_, [](const auto& connection) {
    return !connection || connection->state != Connection::State::Open;
  });
  if (has_left_ && has_said_all && said_all_at_ && said_all_at_->expired()) {
    return fmt::format("that rank has closed its context ({})", last_seen());
  }
  return std::nullopt;
}

}  // namespace bluefog::tcp
