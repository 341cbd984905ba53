#include "bluefog_cpp/transport/tcp/connection_table.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "bluefog_cpp/base/silence.hpp"
#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::tcp {
namespace {

/// The bytes of an ordinary lane that a reader takes in before anybody uses them.
constexpr std::size_t kHeldBytes = std::size_t{1} << 20U;

}  // namespace

ConnectionTable::ConnectionTable(int rank, std::size_t size, const TcpTransportOptions& options,
                                 Call call)
    : rank_(rank), options_(options), call_(std::move(call)), peers_(size) {}

bool ConnectionTable::any(const std::function<bool(const Connection&)>& is_so) const {
  return std::ranges::any_of(peers_, [&](const Peer& peer) {
    return std::ranges::any_of(peer.connections(), [&](const auto& connection) {
      return connection && is_so(*connection);
    });
  });
}

// ---- beginnings

Connection& ConnectionTable::use(int rank, std::size_t channel) {
  Peer& to = peer(rank);
  for (const std::size_t one : {kControlChannel, channel}) {
    Connection& connection = to.make(pool_, rank, one);
    if (connection.state == Connection::State::Idle && !to.is_gone()) {
      connection.state = Connection::State::Asked;
      call_(rank, one);
    }
  }
  return *to.find(channel);
}

std::optional<Answer::Verdict> ConnectionTable::on_call(int rank, std::size_t channel) {
  Peer& from = peer(rank);
  // A rank that has left may still bring its last messages.
  if (is_leaving_ || from.has_failed()) {
    return std::nullopt;
  }
  Connection& connection = from.make(pool_, rank, channel);
  // The lower rank's connection stays where both have called.
  const bool is_crossed = connection.state != Connection::State::Idle &&
                          (rank > rank_ || connection.state != Connection::State::Asked);
  if (is_crossed) {
    return Answer::Verdict::Crossed;
  }
  connection.state = Connection::State::Asked;
  return Answer::Verdict::Welcome;
}

void ConnectionTable::set_options(const Connection& connection) const noexcept {
  const int fd = connection.socket.get();
  if (options_.socket_bytes > 0) {
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &options_.socket_bytes, sizeof(int));
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options_.socket_bytes, sizeof(int));
  }
  // Control frames are always read. A lane's reader may rest for long, which Linux would take for
  // silence; 0 takes back what stood until the greeting was answered.
  const bool is_control = connection.channel == kControlChannel;
  const unsigned silence = is_control ? static_cast<unsigned>(options_.silence.count()) : 0;
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
}

bool ConnectionTable::open(int rank, std::size_t channel, shm::UniqueFd socket) {
  const Peer& from = peer(rank);
  Connection* const connection = from.find(channel);
  if (connection == nullptr || from.has_failed() || connection->state != Connection::State::Asked) {
    return false;
  }
  connection->socket = std::move(socket);
  connection->closed_in_forks = ForkClosed(connection->socket.get());
  set_options(*connection);
  try {
    connection->events = EPOLLIN | EPOLLRDHUP;
    readiness_.add(connection->socket.get(), connection->events, connection);
  } catch (const TransportError& error) {
    break_off(rank, error.what());
    return true;
  }
  connection->state = Connection::State::Open;
  connection->out.set_socket(connection->socket.get());
  has_deep_lanes_ =
      has_deep_lanes_ || (channel != kControlChannel && is_deep(static_cast<Lane>(channel)));
  has_background_ = has_background_ || has_deep_lanes_;
  connection->out.flush();
  note_sent(*connection);
  return true;
}

// ---- ends

std::string ConnectionTable::words_of(const Connection& connection, int error) const {
  if (error == 0) {
    return "it ended";
  }
  const bool is_silence = error == ETIMEDOUT || error == EHOSTUNREACH;
  return connection.channel == kControlChannel && is_silence
             ? fmt::format("{}: its host has answered nothing for {:.3g} s (BLUEFOG_TCP_SILENCE)",
                           reason_of(error),
                           std::chrono::duration<double>(options_.silence).count())
             : reason_of(error);
}

void ConnectionTable::end(Connection& connection, int error) {
  if (connection.state != Connection::State::Open) {
    return;
  }
  readiness_.remove(connection.socket.get());
  connection.state = Connection::State::Over;
  connection.out.set_socket(-1);
  connection.out.clear();
  connection.closed_in_forks = ForkClosed();
  connection.socket.reset();
  connection.failure = words_of(connection, error);
  peer(connection.rank).note_end(connection, error);
}

void ConnectionTable::break_off(int rank, const std::string& why) {
  Peer& from = peer(rank);
  from.fail(why);
  for (const auto& connection : from.connections()) {
    if (connection) {
      end(*connection, 0);
      connection->state = Connection::State::Over;
      connection->out.clear();
    }
  }
}

// ---- bytes

void ConnectionTable::note_sent(Connection& connection) {
  connection.last_sent = tick_;
  connection.out.flush();
  if (connection.out.error() != 0) {
    end(connection, connection.out.error());
  } else {
    has_background_ = has_background_ || connection.out.has_waiting();
    update_events(connection);
  }
}

bool ConnectionTable::wants_more(const Connection& connection) const noexcept {
  return connection.channel != static_cast<std::size_t>(Lane::Ordinary) || is_leaving_ ||
         connection.in.held_bytes() < kHeldBytes;
}

void ConnectionTable::look_at_background() {
  if (has_background_ && !has_deep_lanes_) {
    has_background_ =
        any([](const Connection& connection) { return connection.out.has_waiting(); });
  }
}

void ConnectionTable::send_signs_of_life() {
  for (const Peer& to : peers_) {
    if (Connection* const control = to.find(kControlChannel);
        control != nullptr && control->state == Connection::State::Open &&
        control->last_sent + 1 < tick_ && control->out.has_room()) {
      control->out.add(FrameFront::numbered(FrameKind::Heartbeat, tick_));
      note_sent(*control);
    }
  }
}

// The rank's own thread sends them, whatever its calls do, and looks at what has come before.
bool ConnectionTable::break_with_the_silent(std::chrono::milliseconds tick) {
  const auto limit = static_cast<std::uint64_t>(options_.heartbeat / tick) + 1;
  bool are_some = false;
  for (std::size_t rank = 0; options_.heartbeat.count() > 0 && rank < peers_.size(); ++rank) {
    Peer& other = peers_[rank];
    const Connection* const control = other.find(kControlChannel);
    const bool is_open = control != nullptr && control->state == Connection::State::Open;
    if (!is_open) {
      other.note_heard(tick_);
    } else if (!other.is_gone() && tick_ > other.last_heard() + limit) {
      break_off(static_cast<int>(rank),
                fmt::format("{} for {:.3g} s (BLUEFOG_HEARTBEAT)", kSilence,
                            std::chrono::duration<double>(options_.heartbeat).count()));
      are_some = true;
    }
  }
  return are_some;
}

}  // namespace bluefog::tcp
