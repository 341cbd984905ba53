#include "bluefog_cpp/transport/shm/control_streams.hpp"

#include <string>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/shm/shared_text.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::shm {

void ControlStreams::send(std::size_t index, const ControlMessage& message) {
  Peer& peer = peers_[index];
  if (peer.is_gone || (peer.waiting.empty() && try_send(index, message)) ||
      peer.waiting.size() >= Transport::kMostWaitingControls) {
    return;
  }
  peer.waiting.push_back(message);
  ++waiting_;
}

bool ControlStreams::try_send(std::size_t index, const ControlMessage& message) {
  Peer& peer = peers_[index];
  if (peer.out == nullptr) {
    try {
      peer.out = group_.make<ControlStream>(group_.link(group_.own(), index).control);
    } catch (const TransportError&) {
      return false;  // the message waits: no caller of a call that ends can do anything about it
    }
  }
  ControlStream& stream = *peer.out;
  if (peer.written - stream.consumed.load(std::memory_order_acquire) >= kControlEntries) {
    return false;
  }
  ControlEntry& entry = stream.entries[peer.written % kControlEntries];
  entry.kind = message.kind;
  entry.call = message.call;
  copy_text(entry.text, message.text);
  entry.turn.store(turn_of(peer.written, kControlEntries), std::memory_order_release);
  ++peer.written;
  group_.head(index).control_bell.fetch_add(1, std::memory_order_seq_cst);
  group_.head(index).doorbell.ring();
  return true;
}

bool ControlStreams::send_waiting() {
  bool moved = false;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    while (!peer.waiting.empty() && try_send(i, peer.waiting.front())) {
      peer.waiting.pop_front();
      --waiting_;
      moved = true;
    }
  }
  return moved;
}

void ControlStreams::forget(std::size_t index) noexcept {
  Peer& peer = peers_[index];
  peer.is_gone = true;
  waiting_ -= peer.waiting.size();
  peer.waiting.clear();
}

std::optional<std::pair<std::size_t, ControlMessage>> ControlStreams::next() {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.in == nullptr) {
      peer.in = group_.find<ControlStream>(i, group_.link(i, group_.own()).control);
      if (peer.in == nullptr) {
        continue;
      }
    }
    ControlStream& stream = *peer.in;
    const ControlEntry& entry = stream.entries[peer.read % kControlEntries];
    if (entry.turn.load(std::memory_order_acquire) == turn_of(peer.read, kControlEntries)) {
      ControlMessage message{
          .kind = entry.kind, .call = entry.call, .text = std::string(text_of(entry.text))};
      ++peer.read;
      ++taken_;
      stream.consumed.store(peer.read, std::memory_order_release);
      group_.head(i).doorbell.ring();  // its writer may wait for room
      return std::pair{i, std::move(message)};
    }
  }
  return std::nullopt;
}

}  // namespace bluefog::shm
