#include "bluefog_cpp/one_sided/window_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {}  // namespace

WindowLink::WindowLink(Transport& network, int own, int peer, Ends ends)
    : network_(network),
      own_(own),
      peer_(peer),
      ends_(std::move(ends)),
      reader_{{{.rank = peer}}} {}

bool WindowLink::has_posted() const noexcept {
  return std::ranges::any_of(streams_, [](const Stream& stream) { return !stream.out.empty(); });
}

bool WindowLink::is_quiet() const noexcept {
  return !has_posted() &&
         std::ranges::none_of(streams_, [](const Stream& stream) { return bool(stream.message); });
}

// ---- sending

void WindowLink::post(Parcel parcel) {
  const bool is_request_for_values = parcel.head.kind == WindowMessage::Kind::Get;
  Stream& stream = is_request_for_values ? streams_.front() : streams_.back();
  stream.out.push_back({.parcel = std::move(parcel)});
}

void WindowLink::drop_posted() noexcept {
  for (Stream& stream : streams_) {
    stream.out.clear();
  }
}

bool WindowLink::send() {
  bool moved = false;
  for (Stream& stream : streams_) {
    moved |= send(stream);
  }
  return moved;
}

bool WindowLink::send(Stream& stream) {
  bool moved = false;
  while (!stream.out.empty()) {
    Outgoing& out = stream.out.front();
    if (!out.head_is_out) {
      if (!send_part(stream, out, std::as_bytes(std::span(&out.parcel.head, 1)))) {
        return moved;
      }
      out.head_is_out = true;
      moved = true;
    }
    if (!out.parcel.payload.empty() && !send_part(stream, out, out.parcel.payload)) {
      return moved;
    }
    stream.out.pop_front();
    moved = true;
  }
  return moved;
}

bool WindowLink::send_part(Stream& stream, Outgoing& out, std::span<const std::byte> bytes) {
  if (!out.departure) {
    Departure& departure = out.departure.emplace();
    departure.header.id = CallId::make(stream.next_message++, 0);
    departure.header.bytes = bytes.size();
    departure.data = bytes.data();
    departure.readers = reader_;
    departure.lane = stream.lane;
  }
  while (!out.departure->complete()) {
    if (!network_.publish(*out.departure)) {
      return false;
    }
  }
  out.departure.reset();
  return true;
}

void WindowLink::copy_payload(Outgoing& out) {
  Parcel& parcel = out.parcel;
  if (parcel.copy.empty()) {
    parcel.copy.assign(parcel.payload.begin(), parcel.payload.end());
    parcel.payload = parcel.copy;
  }
  if (out.departure && out.head_is_out) {
    out.departure->data = parcel.copy.data();
  }
  parcel.owner.reset();
  parcel.request = nullptr;
}

void WindowLink::copy_payloads_of(const std::shared_ptr<WindowTarget>& target) {
  for (Stream& stream : streams_) {
    for (Outgoing& out : stream.out) {
      if (out.parcel.owner == target) {
        copy_payload(out);
      }
    }
  }
}

void WindowLink::let_go_of(const void* request) {
  const auto is_it = [&](const Outgoing& out) { return out.parcel.request == request; };
  for (Stream& stream : streams_) {
    std::erase_if(stream.out, [&](const Outgoing& out) {
      return is_it(out) && !out.departure && !out.head_is_out;
    });
    if (const auto begun = std::ranges::find_if(stream.out, is_it); begun != stream.out.end()) {
      copy_payload(*begun);
    }
  }
}

// ---- receiving

bool WindowLink::take(Stream& stream, std::span<std::byte> room) {
  while (stream.used < room.size()) {
    const auto here = network_.readable(peer_, stream.lane);
    if (here.empty()) {
      return false;
    }
    const std::size_t bytes = std::min(here.size(), room.size() - stream.used);
    std::memcpy(room.data() + stream.used, here.data(), bytes);
    network_.consume(peer_, stream.lane, bytes);
    stream.used += bytes;
  }
  if (!network_.at_end(peer_, stream.lane)) {
    return false;
  }
  network_.finish(peer_, stream.lane);
  return true;
}

bool WindowLink::receive() {
  bool moved = false;
  for (Stream& stream : streams_) {
    moved |= receive(stream);
  }
  return moved;
}

bool WindowLink::receive(Stream& stream) {
  bool moved = false;
  while (const MessageHeader* const header = network_.arrived(peer_, stream.lane)) {
    std::optional<WindowMessage>& incoming = stream.message;
    const std::uint64_t expected = incoming ? incoming->bytes : sizeof(WindowMessage);
    if (header->bytes != expected) {
      throw InternalError(
          fmt::format("rank {}: rank {} sent {} bytes of a window's message, expected {}", own_,
                      peer_, header->bytes, expected));
    }
    if (!incoming) {
      if (!take(stream, stream.head)) {
        return moved;
      }
      std::memcpy(&incoming.emplace(), stream.head.data(), stream.head.size());
      stream.used = 0;
    } else {
      std::span<std::byte> room = ends_.room(*incoming);
      if (room.empty()) {
        payload_.resize(incoming->bytes);
        room = payload_;
      }
      if (!take(stream, room)) {
        return moved;
      }
      stream.used = room.size();
    }
    moved = true;
    if (stream.used == incoming->bytes) {
      const WindowMessage message = *std::exchange(incoming, std::nullopt);
      stream.used = 0;
      ends_.serve(message, payload_);
    }
  }
  return moved;
}

}  // namespace bluefog
