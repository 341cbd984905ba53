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

/// Puts the frames together that come on a connection for words.
class WordReader {
 public:
  /// The longest text that travels.
  static constexpr std::size_t kMostTextBytes = 4096;

  struct Heard {
    FrameKind kind = FrameKind::Word;
    ControlMessage::Kind word = ControlMessage::Kind::Refusal;
    /// A word's call, or the messages that a receipt is for.
    std::uint64_t number = 0;
    std::string text{};
  };

  /// @param rank the sender, for messages.
  explicit WordReader(int rank) noexcept : rank_(rank) {}

  /// Takes all of `bytes`, and adds what they complete to `heard`. @throws InternalError for what
  /// is no word of this transport.
  void feed(std::span<const std::byte> bytes, std::deque<Heard>& heard);

 private:
  static constexpr std::size_t kFrontBytes = sizeof(FrameStart) + sizeof(std::uint64_t);

  void begin();

  int rank_;
  std::array<std::byte, kFrontBytes> front_{};
  std::size_t front_length_ = 0;
  Heard coming_{};
  std::size_t text_left_ = 0;
};

}  // namespace bluefog::tcp
