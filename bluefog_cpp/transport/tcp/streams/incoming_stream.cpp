#include "bluefog_cpp/transport/tcp/streams/incoming_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bluefog_cpp/error.hpp"

namespace bluefog::tcp {

void IncomingStream::refuse_frame(const FrameStart& start, std::string_view expected) const {
  throw InternalError(fmt::format(
      "TCP transport: rank {} sent a frame of kind {} with {} bytes where {} was expected", rank_,
      static_cast<unsigned>(start.kind), start.payload_bytes, expected));
}

// ---- the bytes of the connection

std::size_t IncomingStream::take_front(std::span<const std::byte> bytes) {
  std::size_t used = 0;
  const auto fill_to = [&](std::size_t length) {
    const std::size_t more =
        std::min(length - std::min(length, front_length_), bytes.size() - used);
    std::memcpy(front_.data() + front_length_, bytes.data() + used, more);
    front_length_ += more;
    used += more;
  };
  fill_to(sizeof(FrameStart));
  if (front_length_ < sizeof(FrameStart)) {
    return used;
  }
  std::memcpy(&start_, front_.data(), sizeof start_);
  const std::size_t length = front_bytes(start_);
  if (length == 0) {
    refuse_frame(start_, "a frame of this transport");
  }
  fill_to(length);
  if (front_length_ == length) {
    begin_frame();
    front_length_ = 0;
  }
  return used;
}

void IncomingStream::begin_frame() {
  const std::size_t missing =
      is_coming_ ? messages_.back().header.bytes - messages_.back().received : 0;
  switch (start_.kind) {
    case FrameKind::Head: {
      HeadRest rest;
      std::memcpy(&rest, front_.data() + sizeof(FrameStart), sizeof rest);
      if (is_coming_ || start_.payload_bytes > rest.bytes) {
        refuse_frame(start_, is_coming_ ? "the rest of a message" : "a piece of a message");
      }
      begin_message(rest,
                    std::span(front_).subspan(sizeof(FrameStart) + sizeof rest, start_.detail));
      break;
    }
    case FrameKind::Piece:
      if (!is_coming_ || start_.payload_bytes > missing) {
        refuse_frame(start_, "a message's beginning");
      }
      break;
    case FrameKind::Abort:
      if (!is_coming_ || start_.payload_bytes > BlockPool::kMostBytes) {
        refuse_frame(start_, "a message's beginning");
      }
      abort_text_.clear();
      if (start_.payload_bytes == 0) {
        messages_.back().abort_reason.emplace();
        is_coming_ = false;
      }
      break;
    case FrameKind::Goodbye:
      has_goodbye_ = true;
      break;
    default:
      refuse_frame(start_, "a frame of a lane");
  }
  payload_left_ = start_.payload_bytes;
}

void IncomingStream::begin_message(const HeadRest& rest, std::span<const std::byte> name) {
  Message& message = messages_.emplace_back();
  std::memcpy(message.name.data(), name.data(), name.size());
  message.header.id = {rest.id};
  message.header.bytes = rest.bytes;
  message.header.weight = rest.weight;
  message.on_other_lane = rest.on_other_lane;
  message.header.envelope = {.count = rest.count,
                             .name_hash = rest.name_hash,
                             .kind = static_cast<OpKind>(rest.op),
                             .dtype = static_cast<Dtype>(rest.dtype),
                             .name = {message.name.data(), name.size()}};
  held_bytes_ += kMessageBytes;
  is_coming_ = rest.bytes > 0;
}

// The memory that the next bytes of the last message go to.
std::span<std::byte> IncomingStream::place() {
  Message& message = messages_.back();
  if (message.received == message.blocks_end) {
    message.blocks.push_back(pool_.take(message.header.bytes - message.received));
    message.blocks_end += message.blocks.back().bytes();
    held_bytes_ += message.blocks.back().bytes();
  }
  const BlockPool::Block& last = message.blocks.back();
  const std::size_t left = message.blocks_end - message.received;
  return {last.data() + last.bytes() - left, std::min(left, payload_left_)};
}

std::span<std::byte> IncomingStream::room() {
  const bool is_payload =
      payload_left_ >= kLeastRoom && start_.kind != FrameKind::Abort && front_length_ == 0;
  return is_payload ? place() : std::span<std::byte>{};
}

void IncomingStream::note_received(std::size_t bytes) noexcept {
  Message& message = messages_.back();
  message.received += bytes;
  payload_left_ -= bytes;
  is_coming_ = message.received < message.header.bytes;
}

std::size_t IncomingStream::take_payload(std::span<const std::byte> bytes) {
  if (start_.kind == FrameKind::Abort) {
    const std::size_t more = std::min(payload_left_, bytes.size());
    abort_text_.append(reinterpret_cast<const char*>(bytes.data()), more);
    payload_left_ -= more;
    if (payload_left_ == 0) {
      messages_.back().abort_reason = abort_text_;
      is_coming_ = false;
    }
    return more;
  }
  const auto to = place();
  const std::size_t more = std::min(to.size(), bytes.size());
  std::memcpy(to.data(), bytes.data(), more);
  note_received(more);
  return more;
}

void IncomingStream::feed(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    bytes = bytes.subspan(payload_left_ > 0 ? take_payload(bytes) : take_front(bytes));
  }
}

// ---- reading

std::span<const std::byte> IncomingStream::readable() const noexcept {
  if (messages_.empty() || messages_.front().blocks.empty()) {
    return {};
  }
  const Message& message = messages_.front();
  const BlockPool::Block& first = message.blocks.front();
  const std::size_t end = std::min(message.received, message.first_block + first.bytes());
  const std::size_t whole = end == message.header.bytes ? end : end / kCacheLine * kCacheLine;
  if (whole <= message.used) {
    return {};
  }
  return {first.data() + (message.used - message.first_block), whole - message.used};
}

void IncomingStream::consume(std::size_t bytes) noexcept {
  if (!messages_.empty()) {
    messages_.front().used += bytes;
    drop_used_blocks(messages_.front());
  }
}

void IncomingStream::drop_used_blocks(Message& message) noexcept {
  while (!message.blocks.empty() &&
         (message.used == message.header.bytes ||
          message.used >= message.first_block + message.blocks.front().bytes())) {
    const std::size_t bytes = message.blocks.front().bytes();
    message.first_block += bytes;
    held_bytes_ -= bytes;
    message.blocks.pop_front();
  }
}

std::optional<std::string> IncomingStream::aborted() const {
  return messages_.empty() ? std::nullopt : messages_.front().abort_reason;
}

void IncomingStream::finish() noexcept {
  if (messages_.empty()) {
    return;
  }
  Message& message = messages_.front();
  message.used = message.header.bytes;
  drop_used_blocks(message);
  messages_.pop_front();
  held_bytes_ -= kMessageBytes;
  ++taken_;
}

}  // namespace bluefog::tcp
