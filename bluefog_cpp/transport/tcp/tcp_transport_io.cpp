// The bytes of a transport's connections, and how these begin and end.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/tcp/tcp_transport.hpp"

namespace bluefog::tcp {
namespace {

/// The bytes of an ordinary lane that a reader takes in before anybody uses them.
constexpr std::size_t kHeldBytes = std::size_t{1} << 20U;
/// The bytes that one look reads of a connection: few, to be combined while they are in the cache.
constexpr std::size_t kReadBytes = std::size_t{128} << 10U;

}  // namespace

bool TcpTransport::wants_more(const Connection& connection) const noexcept {
  return connection.channel != static_cast<std::size_t>(Lane::Ordinary) || is_leaving_ ||
         connection.in.held_bytes() < kHeldBytes;
}

// ---- moving

bool TcpTransport::progress() {
  const Lock lock(mutex_);
  is_watched_ = false;
  if (std::exchange(is_armed_, false)) {
    readiness_.disarm();
  }
  return pump();
}

bool TcpTransport::pump() {
  std::array<epoll_event, 64> room;
  bool moved = false;
  for (const epoll_event& event : readiness_.look(room)) {
    auto& connection = *static_cast<Connection*>(event.data.ptr);
    if (connection.state != Connection::State::Open) {
      continue;  // an earlier event has ended it
    }
    if ((event.events & EPOLLOUT) != 0) {
      connection.out.note_room();
      connection.out.flush();
      note_sent(connection);
      moved = true;
    }
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) {
      moved |= read(connection);
    }
  }
  return moved;
}

bool TcpTransport::read(Connection& connection) {
  std::size_t total = 0;
  while (connection.state == Connection::State::Open && wants_more(connection) &&
         total < kReadBytes) {
    ssize_t got = 0;
    std::size_t wanted = 0;
    try {
      const bool is_lane = connection.channel != kWordChannel;
      const auto room = is_lane ? connection.in.room() : std::span<std::byte>{};
      std::array<iovec, 2> parts{iovec{room.data(), room.size()},
                                 iovec{scratch_.data(), scratch_.size()}};
      msghdr message{};
      message.msg_iov = room.empty() ? &parts[1] : parts.data();
      message.msg_iovlen = room.empty() ? 1 : 2;
      wanted = room.size() + scratch_.size();
      got = ::recvmsg(connection.socket.get(), &message, MSG_DONTWAIT);
      if (got > 0) {
        const auto bytes = static_cast<std::size_t>(got);
        const std::size_t direct = std::min(bytes, room.size());
        if (direct > 0) {
          connection.in.note_received(direct);
        }
        const std::span rest(scratch_.data(), bytes - direct);
        is_lane ? connection.in.feed(rest) : take_words(connection, rest);
      }
    } catch (const std::bad_alloc&) {
      break_off(connection.rank, "no memory was left for its messages");
      return true;
    } catch (const InternalError& error) {
      break_off(connection.rank, error.what());
      return true;
    }
    if (got <= 0) {
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        break;
      }
      end(connection, got == 0 ? 0 : errno);
      return true;
    }
    total += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < wanted) {
      break;
    }
  }
  connection.update_events(readiness_, wants_more(connection));
  return total > 0;
}

// Messages that were sent before a word are looked for before the word counts.
void TcpTransport::take_words(Connection& connection, std::span<const std::byte> bytes) {
  Peer& from = peer(connection.rank);
  const std::vector<std::byte> own(bytes.begin(), bytes.end());  // the lanes use the scratch too
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    if (auto& data = from.connections[lane]; data && data->state == Connection::State::Open) {
      read(*data);
    }
  }
  from.words->feed(own, heard_);
  while (!heard_.empty()) {
    auto heard = std::move(heard_.front());
    heard_.pop_front();
    hear(from, connection.rank, heard);
  }
}

void TcpTransport::hear(Peer& from, int rank, WordReader::Heard& heard) {
  switch (heard.kind) {
    case FrameKind::Word:
      words_.emplace_back(
          rank,
          ControlMessage{.kind = heard.word, .call = heard.number, .text = std::move(heard.text)});
      break;
    case FrameKind::Receipt:
      for (; from.taken < heard.number && !from.untaken.empty(); ++from.taken) {
        from.untaken.pop_front();
      }
      break;
    case FrameKind::Goodbye:
      from.has_left = true;
      from.said_all_at = from.said_all_at.value_or(Deadline::after(kLateConnections));
      for (auto& connection : from.connections) {
        if (connection) {
          connection->out.clear();
        }
      }
      break;
    default:
      break;
  }
}

void TcpTransport::ring_bell() noexcept {
  if (bell_ != nullptr) {
    bell_->ring();
  }
}

bool TcpTransport::ring(Doorbell* bell) {
  const Lock lock(mutex_);
  bell_ = bell;
  return bell != nullptr;
}

void TcpTransport::watch(Watch watch) {
  const Lock lock(mutex_);
  if (has_background_ && !has_deep_lanes_) {
    has_background_ =
        any([](const Connection& connection) { return connection.out.has_waiting(); });
  }
  if (watch == Watch::ForSleeper || has_background_) {
    is_watched_ = true;
    if (!std::exchange(is_armed_, true)) {
      readiness_.arm();
    }
  }
}

void TcpTransport::on_ready() {
  const Lock lock(mutex_);
  readiness_.take();
  is_armed_ = false;
  if (is_watched_) {
    if (pump()) {
      ring_bell();
    }
    is_armed_ = true;
    readiness_.arm();
  }
}

// Signs of life, so that a host which is gone shows even where nothing else is sent.
void TcpTransport::on_tick() {
  const Lock lock(mutex_);
  ++tick_;
  bool moved = pump();
  for (Peer& to : peers_) {
    if (auto& words = to.connections[kWordChannel];
        words && words->state == Connection::State::Open && words->last_sent + 1 < tick_ &&
        words->out.has_room()) {
      words->out.add(FrameFront::numbered(FrameKind::Heartbeat, tick_));
      words->out.flush();
      note_sent(*words);
    }
    judge(to);
    moved = moved || (to.verdict_at && !to.failure.empty());
  }
  if (moved) {
    ring_bell();
  }
}

// ---- beginnings and ends

std::optional<Answer::Verdict> TcpTransport::on_call(int rank, std::size_t channel) {
  const Lock lock(mutex_);
  Peer& from = peer(rank);
  // A rank that has left may still bring its last messages.
  if (is_leaving_ || !from.failure.empty()) {
    return std::nullopt;
  }
  auto& connection = from.connections[channel];
  if (!connection) {
    connection = std::make_unique<Connection>(pool_, rank, channel);
  }
  // The lower rank's connection stays where both have called.
  const bool is_crossed = connection->state != Connection::State::Idle &&
                          (rank > rank_ || connection->state != Connection::State::Asked);
  if (is_crossed) {
    return Answer::Verdict::Crossed;
  }
  connection->state = Connection::State::Asked;
  return Answer::Verdict::Welcome;
}

void TcpTransport::set_options(const Connection& connection) const noexcept {
  const int fd = connection.socket.get();
  if (options_.socket_bytes > 0) {
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &options_.socket_bytes, sizeof(int));
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options_.socket_bytes, sizeof(int));
  }
  // Words are always read. A lane's reader may rest for long, which Linux would take for silence.
  if (connection.channel == kWordChannel) {
    const auto silence = static_cast<unsigned>(options_.silence.count());
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
  }
}

void TcpTransport::on_open(int rank, std::size_t channel, shm::UniqueFd socket) {
  const Lock lock(mutex_);
  Peer& from = peer(rank);
  auto& connection = from.connections[channel];
  if (!connection || !from.failure.empty() || connection->state != Connection::State::Asked) {
    return;
  }
  connection->socket = std::move(socket);
  connection->closed_in_forks = ForkClosed(connection->socket.get());
  set_options(*connection);
  try {
    connection->events = EPOLLIN | EPOLLRDHUP;
    readiness_.add(connection->socket.get(), connection->events, connection.get());
  } catch (const TransportError& error) {
    break_off(rank, error.what());
    ring_bell();
    return;
  }
  connection->state = Connection::State::Open;
  connection->out.set_socket(connection->socket.get());
  if (channel == kWordChannel && !from.words) {
    from.words.emplace(rank);
  }
  has_deep_lanes_ =
      has_deep_lanes_ || (channel != kWordChannel && is_deep(static_cast<Lane>(channel)));
  has_background_ = has_background_ || has_deep_lanes_;
  connection->out.flush();
  note_sent(*connection);
  if (has_background_ && !is_watched_ && !is_armed_) {
    is_watched_ = is_armed_ = true;  // whoever drives takes it back
    readiness_.arm();
  }
  ring_bell();
}

void TcpTransport::on_failed(int rank, std::size_t channel, const std::string& why) {
  const Lock lock(mutex_);
  const Connection* const connection = find(rank, channel);
  if (connection != nullptr && connection->state == Connection::State::Open) {
    return;  // that rank's own call came
  }
  break_off(rank, why);
  ring_bell();
}

void TcpTransport::end(Connection& connection, int error) {
  if (connection.state != Connection::State::Open) {
    return;
  }
  Peer& from = peer(connection.rank);
  readiness_.remove(connection.socket.get());
  connection.state = Connection::State::Over;
  connection.out.set_socket(-1);
  connection.out.clear();
  connection.closed_in_forks = ForkClosed();
  connection.socket.reset();
  connection.failure = error == 0 ? std::string("it ended") : std::strerror(error);
  if (from.has_left || !from.failure.empty() || connection.in.has_goodbye()) {
    return;
  }
  if (connection.channel != kWordChannel) {
    // The connection for words says whether the rank has left.
    constexpr std::chrono::milliseconds kGrace{500};
    from.verdict_at = from.verdict_at.value_or(Deadline::after(kGrace));
    return;
  }
  from.failure = error == 0 ? "its process has ended without closing its context"
                            : fmt::format("the connection to it broke: {}", std::strerror(error));
}

void TcpTransport::judge(Peer& of) {
  if (of.verdict_at && of.failure.empty() && !of.has_left && of.verdict_at->expired()) {
    for (const auto& connection : of.connections) {
      if (connection && !connection->failure.empty()) {
        of.failure =
            fmt::format("a connection to it broke without a goodbye: {}", connection->failure);
      }
    }
  }
}

void TcpTransport::break_off(int rank, const std::string& why) {
  Peer& from = peer(rank);
  if (from.failure.empty() && !from.has_left) {
    from.failure = why;
  }
  for (auto& connection : from.connections) {
    if (connection) {
      end(*connection, 0);
      connection->state = Connection::State::Over;
      connection->out.clear();
    }
  }
}

}  // namespace bluefog::tcp
