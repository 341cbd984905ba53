#include "bluefog_cpp/one_sided/window_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

constexpr Lane kLane = Lane::Ordinary;

}  // namespace

WindowLink::WindowLink(Transport& network, int own, int peer, Ends ends)
    : network_(network),
      own_(own),
      peer_(peer),
      ends_(std::move(ends)),
      reader_{{{.rank = peer}}},
      head_(sizeof(WindowMessage)) {}

// ---- sending

void WindowLink::post(Parcel parcel) { out_.push_back({.parcel = std::move(parcel)}); }

bool WindowLink::send() {
  bool moved = false;
  while (!out_.empty()) {
    Outgoing& out = out_.front();
    if (!out.head_is_out) {
      if (!send_part(out, std::as_bytes(std::span(&out.parcel.head, 1)))) {
        return moved;
      }
      out.head_is_out = true;
      moved = true;
    }
    if (!out.parcel.payload.empty() && !send_part(out, out.parcel.payload)) {
      return moved;
    }
    out_.pop_front();
    moved = true;
  }
  return moved;
}

bool WindowLink::send_part(Outgoing& out, std::span<const std::byte> bytes) {
  if (!out.departure) {
    Departure& departure = out.departure.emplace();
    departure.header.id = CallId::make(next_message_++, 0);
    departure.header.bytes = bytes.size();
    departure.data = bytes.data();
    departure.readers = reader_;
    departure.lane = kLane;
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
  for (Outgoing& out : out_) {
    if (out.parcel.owner == target) {
      copy_payload(out);
    }
  }
}

void WindowLink::let_go_of(const void* request) {
  const auto is_it = [&](const Outgoing& out) { return out.parcel.request == request; };
  std::erase_if(
      out_, [&](const Outgoing& out) { return is_it(out) && !out.departure && !out.head_is_out; });
  if (const auto begun = std::ranges::find_if(out_, is_it); begun != out_.end()) {
    copy_payload(*begun);
  }
}

// ---- receiving

bool WindowLink::take(std::span<std::byte> room) {
  while (used_ < room.size()) {
    const auto here = network_.readable(peer_, kLane);
    if (here.empty()) {
      return false;
    }
    const std::size_t bytes = std::min(here.size(), room.size() - used_);
    std::memcpy(room.data() + used_, here.data(), bytes);
    network_.consume(peer_, kLane, bytes);
    used_ += bytes;
  }
  if (!network_.at_end(peer_, kLane)) {
    return false;
  }
  network_.finish(peer_, kLane);
  return true;
}

bool WindowLink::receive() {
  bool moved = false;
  while (const MessageHeader* const header = network_.arrived(peer_, kLane)) {
    const std::uint64_t expected = message_ ? message_->bytes : sizeof(WindowMessage);
    if (header->bytes != expected) {
      throw InternalError(
          fmt::format("rank {}: rank {} sent {} bytes of a window's message, expected {}", own_,
                      peer_, header->bytes, expected));
    }
    if (!message_) {
      if (!take(head_)) {
        return moved;
      }
      std::memcpy(&message_.emplace(), head_.data(), head_.size());
      used_ = 0;
    } else {
      std::span<std::byte> room = ends_.room(*message_);
      if (room.empty()) {
        payload_.resize(message_->bytes);
        room = payload_;
      }
      if (!take(room)) {
        return moved;
      }
      used_ = room.size();
    }
    moved = true;
    if (used_ == message_->bytes) {
      const WindowMessage message = *std::exchange(message_, std::nullopt);
      used_ = 0;
      ends_.serve(message, payload_);
    }
  }
  return moved;
}

}  // namespace bluefog
