#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "bluefog_cpp/transport/tcp/streams/block_pool.hpp"
#include "bluefog_cpp/transport/tcp/streams/frame.hpp"

namespace bluefog::tcp {

/// Frames to one rank on one channel: straight from the caller's memory as far as the socket takes
/// them, and from an outbox.
///
/// Used under the transport's mutex.
class OutgoingStream {
 public:
  /// Bytes of a message before its next frame may come: what an aborted message fills up.
  static constexpr std::size_t kPieceBytes = BlockPool::kMostBytes;

  OutgoingStream() = default;
  OutgoingStream(const OutgoingStream&) = delete;
  OutgoingStream& operator=(const OutgoingStream&) = delete;

  /// From now on bytes go to this socket, which does not block; -1: to none any more.
  void set_socket(int fd) noexcept {
    fd_ = fd;
    is_full_ = false;
  }
  /// The socket has room again.
  void note_room() noexcept { is_full_ = false; }
  /// Whether it had none at the last try.
  [[nodiscard]] bool is_full() const noexcept { return is_full_; }
  /// Whether the next message would go out at once.
  [[nodiscard]] bool has_room() const noexcept { return fd_ >= 0 && !is_full_ && outbox_.empty(); }
  [[nodiscard]] bool has_waiting() const noexcept { return !outbox_.empty(); }
  /// Parts that wait for the socket.
  [[nodiscard]] std::size_t waiting() const noexcept { return outbox_.size(); }
  /// The `errno` that broke the connection, or 0.
  [[nodiscard]] int error() const noexcept { return error_; }

  /// Begins a message: its head goes with the first bytes of `send`. @param on_other_lane as in
  /// `HeadRest`.
  void begin(const MessageHeader& header, std::uint64_t on_other_lane = 0);
  /// Messages that were begun so far.
  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_; }
  /// Whether the message `id` has begun and is not at its end.
  [[nodiscard]] bool is_under_way(CallId id) const noexcept {
    return is_under_way_ && header_.id == id;
  }
  /// Bytes of it that the socket or the outbox has.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  /// Sends bytes of the message from `position` on, as far as the socket takes them, `most` of them
  /// in this call. @param here the message's first bytes. @return whether anything moved.
  bool send(std::span<const std::byte> here, std::size_t most);
  /// Puts bytes of the message from `position` on into the outbox. @param bytes those bytes;
  /// `owner` keeps them.
  void stage(std::span<const std::byte> bytes, const std::shared_ptr<BlockPool::Block>& owner);
  /// Ends the message early.
  void abort(std::string_view reason);

  /// Puts a whole frame into the outbox.
  void add(const FrameFront& front, std::string_view text = {});
  /// Sends from the outbox. @return whether anything moved.
  bool flush();
  void clear() noexcept {
    outbox_.clear();
    is_under_way_ = false;
  }

 private:
  struct Waiting {
    std::vector<std::byte> own{};
    std::shared_ptr<BlockPool::Block> owner{};
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  [[nodiscard]] FrameFront next_front(std::size_t piece_bytes) const;
  void put(const FrameFront& front, std::size_t from, std::string_view text);
  void end_if_whole() noexcept;
  /// Sends `parts`. @return how many bytes the socket took.
  std::size_t write(iovec* parts, std::size_t count);

  int fd_ = -1;
  bool is_full_ = false;
  int error_ = 0;
  std::deque<Waiting> outbox_;

  std::uint64_t begun_ = 0;
  MessageHeader header_{};
  CallName name_{""};
  std::uint64_t on_other_lane_ = 0;
  bool is_under_way_ = false;
  bool has_head_ = false;
  std::size_t position_ = 0;
  /// Bytes of the piece that its frame has announced, and that are still to come.
  std::size_t piece_left_ = 0;
};

}  // namespace bluefog::tcp
