#include "bluefog_cpp/transport/tcp/streams/control_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::tcp {

void ControlReader::begin() {
  FrameStart start;
  std::memcpy(&start, front_.data(), sizeof start);
  const bool is_control = start.kind >= FrameKind::Control && start.kind <= FrameKind::Heartbeat;
  if (!is_control || start.payload_bytes > kMostTextBytes ||
      start.detail > static_cast<std::uint8_t>(ControlMessage::Kind::GivenUp)) {
    throw InternalError(fmt::format(
        "TCP transport: rank {} sent a frame of kind {} with {} bytes where a control frame "
        "of at most {} was expected",
        rank_, static_cast<unsigned>(start.kind), start.payload_bytes, kMostTextBytes));
  }
  coming_ = {.kind = start.kind, .message_kind = static_cast<ControlMessage::Kind>(start.detail)};
  std::memcpy(&coming_.number, front_.data() + sizeof start, sizeof coming_.number);
  text_left_ = start.payload_bytes;
}

void ControlReader::feed(std::span<const std::byte> bytes, std::deque<Frame>& frames) {
  while (!bytes.empty()) {
    std::size_t used = 0;
    if (front_length_ < kFrontBytes) {
      used = std::min(kFrontBytes - front_length_, bytes.size());
      std::memcpy(front_.data() + front_length_, bytes.data(), used);
      front_length_ += used;
      if (front_length_ == kFrontBytes) {
        begin();
      }
    } else {
      used = std::min(text_left_, bytes.size());
      coming_.text.append(reinterpret_cast<const char*>(bytes.data()), used);
      text_left_ -= used;
    }
    bytes = bytes.subspan(used);
    if (front_length_ == kFrontBytes && text_left_ == 0) {
      frames.push_back(std::exchange(coming_, {}));
      front_length_ = 0;
    }
  }
}

}  // namespace bluefog::tcp
