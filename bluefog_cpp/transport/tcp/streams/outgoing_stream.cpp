#include "bluefog_cpp/transport/tcp/streams/outgoing_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace bluefog::tcp {

void OutgoingStream::begin(const MessageHeader& header, std::uint64_t on_other_lane) {
  ++begun_;
  on_other_lane_ = on_other_lane;
  header_ = header;
  name_ = CallName(header.envelope.name);
  header_.envelope.name = name_.text();
  is_under_way_ = true;
  has_head_ = false;
  position_ = 0;
  piece_left_ = 0;
}

FrameFront OutgoingStream::next_front(std::size_t piece_bytes) const {
  return has_head_ ? FrameFront::part(FrameKind::Piece, piece_bytes)
                   : FrameFront::head(header_, piece_bytes, on_other_lane_);
}

void OutgoingStream::end_if_whole() noexcept {
  if (has_head_ && position_ == header_.bytes && piece_left_ == 0) {
    is_under_way_ = false;
  }
}

std::size_t OutgoingStream::write(iovec* parts, std::size_t count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    wanted += parts[i].iov_len;
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    error_ = errno;
  }
  const std::size_t bytes = sent < 0 ? 0 : static_cast<std::size_t>(sent);
  is_full_ = bytes < wanted;
  return bytes;
}

bool OutgoingStream::send(std::span<const std::byte> here, std::size_t most) {
  bool moved = false;
  while (is_under_way_ && has_room() && error_ == 0 && most > 0) {
    if (piece_left_ > 0) {
      iovec part{const_cast<std::byte*>(here.data() + position_), piece_left_};
      const std::size_t sent = write(&part, 1);
      position_ += sent;
      piece_left_ -= sent;
      most -= std::min(most, sent);
      moved = moved || sent > 0;
    } else {
      const std::size_t piece = std::min({here.size() - position_, kPieceBytes, most});
      if (piece == 0 && has_head_) {
        break;
      }
      const FrameFront front = next_front(piece);
      const std::size_t length = front.bytes().size();
      std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(front.bytes().data()), length},
                                 iovec{const_cast<std::byte*>(here.data() + position_), piece}};
      const std::size_t sent = write(parts.data(), piece > 0 ? 2 : 1);
      if (sent == 0) {
        break;
      }
      if (sent < length) {
        put(front, sent, {});
      }
      has_head_ = true;
      const std::size_t payload = sent - std::min(sent, length);
      position_ += payload;
      piece_left_ = piece - payload;
      most -= std::min(most, payload);
      moved = true;
    }
    end_if_whole();
  }
  return moved;
}

void OutgoingStream::stage(std::span<const std::byte> bytes,
                           const std::shared_ptr<BlockPool::Block>& owner) {
  while (!bytes.empty() || !has_head_) {
    if (piece_left_ == 0) {
      piece_left_ = bytes.size();
      put(next_front(piece_left_), 0, {});
      has_head_ = true;
    }
    const std::size_t some = std::min(piece_left_, bytes.size());
    if (some > 0) {
      outbox_.push_back({.owner = owner, .data = bytes.data(), .bytes = some});
    }
    bytes = bytes.subspan(some);
    position_ += some;
    piece_left_ -= some;
  }
  end_if_whole();
}

void OutgoingStream::abort(std::string_view reason) {
  if (piece_left_ > 0) {
    auto& filler = outbox_.emplace_back();  // the reader drops the message, whatever it holds
    filler.own.resize(piece_left_);
    filler.bytes = piece_left_;
    piece_left_ = 0;
  }
  if (!has_head_) {
    put(next_front(0), 0, {});
  }
  const std::string_view text = reason.substr(0, kPieceBytes);
  put(FrameFront::part(FrameKind::Abort, text.size()), 0, text);
  is_under_way_ = false;
}

void OutgoingStream::put(const FrameFront& front, std::size_t from, std::string_view text) {
  auto& waiting = outbox_.emplace_back();
  const auto bytes = front.bytes().subspan(from);
  const auto more = std::as_bytes(std::span(text.data(), text.size()));
  waiting.own.reserve(bytes.size() + more.size());
  waiting.own.assign(bytes.begin(), bytes.end());
  waiting.own.insert(waiting.own.end(), more.begin(), more.end());
  waiting.bytes = waiting.own.size();
}

void OutgoingStream::add(const FrameFront& front, std::string_view text) { put(front, 0, text); }

bool OutgoingStream::flush() {
  constexpr std::size_t kMostParts = 16;
  bool moved = false;
  while (!outbox_.empty() && fd_ >= 0 && !is_full_ && error_ == 0) {
    std::array<iovec, kMostParts> parts;
    std::size_t count = 0;
    for (auto it = outbox_.begin(); it != outbox_.end() && count < kMostParts; ++it, ++count) {
      // The stream's own bytes may be sent in parts: their rest is at the end.
      const std::byte* const data =
          it->owner ? it->data : it->own.data() + (it->own.size() - it->bytes);
      parts[count] = {const_cast<std::byte*>(data), it->bytes};
    }
    std::size_t sent = write(parts.data(), count);
    moved = moved || sent > 0;
    while (sent > 0) {
      Waiting& first = outbox_.front();
      const std::size_t some = std::min(sent, first.bytes);
      first.bytes -= some;
      first.data += first.owner ? some : 0;
      sent -= some;
      if (first.bytes == 0) {
        outbox_.pop_front();
      }
    }
  }
  return moved;
}

}  // namespace bluefog::tcp
