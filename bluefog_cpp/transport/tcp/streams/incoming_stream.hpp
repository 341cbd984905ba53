#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/transport/tcp/streams/block_pool.hpp"
#include "bluefog_cpp/transport/tcp/streams/frame.hpp"

namespace bluefog::tcp {

/// Messages from one rank on one lane, put together from the bytes of a connection. They are read
/// in place, in the blocks that the bytes were received into.
///
/// Used under the transport's mutex; bytes that `room` gave may be written beside it.
class IncomingStream {
 public:
  /// @param rank their sender, for messages.
  IncomingStream(BlockPool& pool, int rank) : pool_(pool), rank_(rank) {}
  IncomingStream(const IncomingStream&) = delete;
  IncomingStream& operator=(const IncomingStream&) = delete;

  /// Memory for the next bytes, where these are payload of a message under way and so many that a
  /// copy would be felt. @throws std::bad_alloc.
  [[nodiscard]] std::span<std::byte> room();
  /// Notes that so many bytes have come into `room`.
  void note_received(std::size_t bytes) noexcept;
  /// Takes bytes that came elsewhere, all of them. @throws InternalError for what is no frame of
  /// this transport; std::bad_alloc.
  void feed(std::span<const std::byte> bytes);

  /// Memory that messages hold which nobody has used up.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  /// Whether the sender has said that nothing more comes.
  [[nodiscard]] bool has_goodbye() const noexcept { return has_goodbye_; }
  /// Messages that were taken so far.
  [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
  /// Messages whose beginning has come so far.
  [[nodiscard]] std::uint64_t come() const noexcept { return taken_ + messages_.size(); }
  /// That of the arrived message's head, as in `HeadRest`.
  [[nodiscard]] std::uint64_t on_other_lane() const noexcept {
    return messages_.empty() ? 0 : messages_.front().on_other_lane;
  }

  // These do the work of the functions of `Transport` with the same names.
  [[nodiscard]] const MessageHeader* arrived() const noexcept {
    return messages_.empty() ? nullptr : &messages_.front().header;
  }
  [[nodiscard]] std::span<const std::byte> readable() const noexcept;
  void consume(std::size_t bytes) noexcept;
  [[nodiscard]] bool at_end() const noexcept {
    return messages_.empty() || messages_.front().used == messages_.front().header.bytes;
  }
  [[nodiscard]] std::optional<std::string> aborted() const;
  void finish() noexcept;

 private:
  struct Message {
    MessageHeader header{};
    std::uint64_t on_other_lane = 0;
    std::array<char, kMaxNameBytes> name{};
    /// Blocks that still have bytes to be read; all but the last are full.
    std::deque<BlockPool::Block> blocks{};
    std::size_t received = 0;
    std::size_t used = 0;
    /// Positions in the message at which the first block begins and the last one ends.
    std::size_t first_block = 0;
    std::size_t blocks_end = 0;
    std::optional<std::string> abort_reason{};
  };

  /// Bytes that a message takes beside its payload.
  static constexpr std::size_t kMessageBytes = 256;
  /// Fewer bytes are copied: a receive of their own would cost more.
  static constexpr std::size_t kLeastRoom = 4096;

  [[nodiscard]] std::size_t take_front(std::span<const std::byte> bytes);
  void begin_frame();
  void begin_message(const HeadRest& rest, std::span<const std::byte> name);
  [[nodiscard]] std::size_t take_payload(std::span<const std::byte> bytes);
  [[nodiscard]] std::span<std::byte> place();
  void drop_used_blocks(Message& message) noexcept;
  [[noreturn]] void refuse_frame(const FrameStart& start, std::string_view expected) const;

  BlockPool& pool_;
  int rank_;
  std::deque<Message> messages_;
  std::size_t held_bytes_ = 0;
  std::uint64_t taken_ = 0;
  bool has_goodbye_ = false;

  // The frame that comes now.
  std::array<std::byte, kMostFrontBytes> front_{};
  std::size_t front_length_ = 0;
  FrameStart start_{};
  std::size_t payload_left_ = 0;
  /// Whether the last message is still coming. False once it is aborted or whole.
  bool is_coming_ = false;
  std::string abort_text_;
};

}  // namespace bluefog::tcp
