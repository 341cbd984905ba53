#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/transport/tcp/streams/frame.hpp"

namespace bluefog::tcp {

/// Puts the frames together that come on a control connection.
class ControlReader {
 public:
  /// The longest text that travels.
  static constexpr std::size_t kMostTextBytes = 4096;

  struct Frame {
    FrameKind kind = FrameKind::Control;
    ControlMessage::Kind message_kind = ControlMessage::Kind::Refusal;
    /// A message's call, or the messages that a receipt is for.
    std::uint64_t number = 0;
    std::string text{};
  };

  /// @param rank the sender, for messages.
  explicit ControlReader(int rank) noexcept : rank_(rank) {}

  /// Takes all of `bytes`, and adds what they complete to `frames`. @throws InternalError for what
  /// is no control frame.
  void feed(std::span<const std::byte> bytes, std::deque<Frame>& frames);

 private:
  static constexpr std::size_t kFrontBytes = sizeof(FrameStart) + sizeof(std::uint64_t);

  void begin();

  int rank_;
  std::array<std::byte, kFrontBytes> front_{};
  std::size_t front_length_ = 0;
  Frame coming_{};
  std::size_t text_left_ = 0;
};

}  // namespace bluefog::tcp
