#include "bluefog_cpp/transport/tcp/receiver.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::tcp {
namespace {

/// The bytes that one look reads of a connection: few, to be combined while they are in the cache.
constexpr std::size_t kReadBytes = std::size_t{128} << 10U;
/// A receive that is not straight into a message.
constexpr std::size_t kScratchBytes = std::size_t{16} << 10U;

}  // namespace

Receiver::Receiver(ConnectionTable& table, Publisher& publisher)
    : table_(table),
      publisher_(publisher),
      scratch_(kScratchBytes),
      readers_(table.peers().size()) {}

bool Receiver::pump() {
  std::array<epoll_event, 64> room;
  bool moved = false;
  for (const epoll_event& event : table_.readiness().look(room)) {
    auto& connection = *static_cast<Connection*>(event.data.ptr);
    if (connection.state != Connection::State::Open) {
      continue;  // an earlier event has ended it
    }
    if ((event.events & EPOLLOUT) != 0) {
      connection.out.note_room();
      table_.note_sent(connection);
      moved = true;
    }
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) {
      moved |= read(connection);
    }
  }
  return moved;
}

bool Receiver::read(Connection& connection) {
  std::size_t total = 0;
  while (connection.state == Connection::State::Open && table_.wants_more(connection) &&
         total < kReadBytes) {
    Received got;
    try {
      got = receive(connection);
    } catch (const std::bad_alloc&) {
      table_.break_off(connection.rank, "no memory was left for its messages");
      return true;
    } catch (const InternalError& error) {
      table_.break_off(connection.rank, error.what());
      return true;
    }
    if (got.bytes <= 0) {
      if (got.bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
        break;
      }
      table_.end(connection, got.bytes == 0 ? 0 : errno);
      return true;
    }
    total += static_cast<std::size_t>(got.bytes);
    if (static_cast<std::size_t>(got.bytes) < got.wanted) {
      break;
    }
  }
  if (total > 0) {
    table_.note_heard(connection.rank);
  }
  table_.update_events(connection);
  return total > 0;
}

Receiver::Received Receiver::receive(Connection& connection) {
  const bool is_lane = connection.channel != kControlChannel;
  const auto room = is_lane ? connection.in.room() : std::span<std::byte>{};
  std::array<iovec, 2> parts{iovec{room.data(), room.size()},
                             iovec{scratch_.data(), scratch_.size()}};
  msghdr message{};
  message.msg_iov = room.empty() ? &parts[1] : parts.data();
  message.msg_iovlen = room.empty() ? 1 : 2;
  const ssize_t got = ::recvmsg(connection.socket.get(), &message, MSG_DONTWAIT);
  if (got > 0) {
    const auto bytes = static_cast<std::size_t>(got);
    const std::size_t direct = std::min(bytes, room.size());
    if (direct > 0) {
      connection.in.note_received(direct);
    }
    const std::span rest(scratch_.data(), bytes - direct);
    is_lane ? connection.in.feed(rest) : take_control(connection, rest);
  }
  return {.bytes = got, .wanted = room.size() + scratch_.size()};
}

// Messages that were sent before a control frame are looked for before the frame counts.
void Receiver::take_control(Connection& connection, std::span<const std::byte> bytes) {
  const int rank = connection.rank;
  const std::vector<std::byte> own(bytes.begin(), bytes.end());  // the lanes use the scratch too
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    if (Connection* const data = table_.find(rank, lane);
        data != nullptr && data->state == Connection::State::Open) {
      read(*data);
    }
  }
  auto& reader = readers_[static_cast<std::size_t>(rank)];
  if (!reader) {
    reader.emplace(rank);
  }
  reader->feed(own, control_frames_);
  while (!control_frames_.empty()) {
    auto frame = std::move(control_frames_.front());
    control_frames_.pop_front();
    take_frame(rank, frame);
  }
}

void Receiver::take_frame(int rank, ControlReader::Frame& frame) {
  switch (frame.kind) {
    case FrameKind::Control:
      controls_.emplace_back(rank, ControlMessage{.kind = frame.message_kind,
                                                  .call = frame.number,
                                                  .text = std::move(frame.text)});
      break;
    case FrameKind::Receipt:
      publisher_.note_receipt(rank, frame.number);
      break;
    case FrameKind::Goodbye:
      table_.peer(rank).note_goodbye();
      break;
    default:
      break;
  }
}

std::optional<std::pair<int, ControlMessage>> Receiver::next_control() {
  if (controls_.empty()) {
    return std::nullopt;
  }
  auto oldest = std::move(controls_.front());
  controls_.pop_front();
  return oldest;
}

}  // namespace bluefog::tcp
