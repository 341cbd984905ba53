#include "bluefog_cpp/transport/tcp/tcp_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace bluefog::tcp {
namespace {

/// The bytes that one step moves of a long message: so few that the other side reads it out of a cache, and
/// reading and combining come in between.
constexpr std::size_t kStepBytes = std::size_t{32} << 10U;
/// Messages up to this length go in one step.
constexpr std::size_t kWholeBytes = std::size_t{128} << 10U;
/// A receive that is not straight into a message.
constexpr std::size_t kScratchBytes = std::size_t{16} << 10U;

constexpr std::size_t channel_of(Lane lane) noexcept { return static_cast<std::size_t>(lane); }

}  // namespace

TcpTransport::TcpTransport(std::unique_ptr<Lobby> lobby, Lobby::Options guests,
                           const TcpTransportOptions& options)
    : rank_(guests.rank),
      options_(options),
      scratch_(kScratchBytes),
      peers_(guests.endpoints.size()),
      lobby_(std::move(lobby)) {
  guests.watched = readiness_.guard();
  guests.tick = std::clamp(options.silence / 4, std::chrono::milliseconds(50),
                           std::chrono::milliseconds(2000));
  lobby_->open(std::move(guests), *this);
}

// ---- connections

Connection& TcpTransport::use(int rank, std::size_t channel) {
  Peer& to = peer(rank);
  for (const std::size_t one : {kWordChannel, channel}) {
    auto& connection = to.connections[one];
    if (!connection) {
      connection = std::make_unique<Connection>(pool_, rank, one);
    }
    if (connection->state == Connection::State::Idle && !is_gone(to)) {
      ask(*connection);
    }
  }
  return *to.connections[channel];
}

void TcpTransport::ask(Connection& connection) {
  connection.state = Connection::State::Asked;
  lobby_->call(connection.rank, connection.channel);
}

void TcpTransport::note_sent(Connection& connection) {
  connection.last_sent = tick_;
  connection.out.flush();
  if (connection.out.error() != 0) {
    end(connection, connection.out.error());
  } else {
    has_background_ = has_background_ || connection.out.has_waiting();
    connection.update_events(readiness_, wants_more(connection));
  }
}

// ---- writing

// A message waits for readers to take an earlier one of its name, as in shared memory. Calls that
// are under way here do not count: their readers may come only after they have got later messages.
bool TcpTransport::is_held_back(const Departure& departure) const {
  const std::uint32_t name = departure.header.envelope.name_hash;
  if (departure.lane != Lane::Deep || departure.announced || name == 0) {
    return false;
  }
  const CallId first = CallId::make(departure.first_under_way, 0);
  return std::ranges::any_of(departure.readers, [&](const WeightedRank& reader) {
    const Peer& to = peer(reader.rank);
    return !is_gone(to) && std::ranges::any_of(to.untaken, [&](const Untaken& message) {
      return message.name_hash == name && message.id < first;
    });
  });
}

void TcpTransport::begin(Departure& departure) {
  for (const WeightedRank& reader : departure.readers) {
    Peer& to = peer(reader.rank);
    if (is_gone(to)) {
      continue;
    }
    MessageHeader header = departure.header;
    header.weight = reader.weight;
    use(reader.rank, channel_of(departure.lane)).out.begin(header);
    if (departure.lane == Lane::Deep) {
      to.untaken.push_back({header.id, header.envelope.name_hash});
    }
  }
  departure.announced = true;
}

bool TcpTransport::publish(Departure& departure) {
  const Lock lock(mutex_);
  return is_deep(departure.lane) ? publish_deep(departure) : publish_ordinary(departure);
}

// The first short message does not wait for its connection.
bool TcpTransport::may_wait(const Departure& departure, const Connection& connection) {
  constexpr std::size_t kShortBytes = 4096;
  return connection.state == Connection::State::Asked && !connection.out.has_waiting() &&
         departure.header.bytes <= std::min(kShortBytes, departure.here);
}

bool TcpTransport::publish_ordinary(Departure& departure) {
  if (!departure.announced) {
    bool all_have_room = true;
    for (const WeightedRank& reader : departure.readers) {
      if (!is_gone(peer(reader.rank))) {
        const Connection& connection = use(reader.rank, channel_of(departure.lane));
        all_have_room &= connection.out.has_room() || may_wait(departure, connection);
      }
    }
    if (!all_have_room) {
      return false;
    }
    begin(departure);
  }
  const std::size_t here = std::min<std::size_t>(departure.header.bytes, departure.here);
  const std::size_t most = departure.header.bytes <= kWholeBytes ? kWholeBytes : kStepBytes;
  bool moved = false;
  bool needs_copy = departure.header.bytes == 0;  // nobody comes again to send its head
  for (const WeightedRank& reader : departure.readers) {
    Connection* const connection = find(reader.rank, channel_of(departure.lane));
    if (connection != nullptr && connection->out.is_under_way(departure.header.id)) {
      moved |= connection->out.has_room() && connection->out.send({departure.data, here}, most);
      needs_copy |= connection->state == Connection::State::Asked;
    }
  }
  if (needs_copy) {
    stage_rest(departure, here);
  }
  std::size_t least = departure.header.bytes;
  for (const WeightedRank& reader : departure.readers) {
    if (Connection* const connection = find(reader.rank, channel_of(departure.lane))) {
      note_sent(*connection);
      if (connection->out.is_under_way(departure.header.id)) {
        least = std::min(least, connection->out.position());
      }
    }
  }
  moved |= least > departure.published;
  departure.published = std::max(departure.published, least);
  return moved;
}

// Deep messages wait for nobody: what the sockets do not take at once is copied.
bool TcpTransport::publish_deep(Departure& departure) {
  if (is_held_back(departure)) {
    return false;
  }
  if (!departure.announced) {
    begin(departure);
  }
  const std::size_t here = std::min<std::size_t>(departure.header.bytes, departure.here);
  for (const WeightedRank& reader : departure.readers) {
    Connection* const connection = find(reader.rank, channel_of(departure.lane));
    if (connection != nullptr && connection->out.is_under_way(departure.header.id) &&
        connection->out.has_room()) {
      connection->out.send({departure.data, here}, here + 1);
    }
  }
  stage_rest(departure, here);
  for (const WeightedRank& reader : departure.readers) {
    if (Connection* const connection = find(reader.rank, channel_of(departure.lane))) {
      note_sent(*connection);
    }
  }
  departure.published = here;
  has_background_ = true;
  return true;
}

// Copies bytes once for all readers that still need them.
void TcpTransport::stage_rest(const Departure& departure, std::size_t end) {
  const auto needs_rest = [&](const WeightedRank& reader) -> Connection* {
    Connection* const connection = find(reader.rank, channel_of(departure.lane));
    const bool needs = connection != nullptr && connection->out.is_under_way(departure.header.id);
    return needs ? connection : nullptr;
  };
  std::size_t from = end;
  for (const WeightedRank& reader : departure.readers) {
    if (const Connection* const connection = needs_rest(reader)) {
      from = std::min(from, connection->out.position());
      if (end == connection->out.position()) {
        needs_rest(reader)->out.stage({}, nullptr);  // its head may not be out
      }
    }
  }
  while (from < end) {
    auto block = std::make_shared<BlockPool::Block>(pool_.take(end - from));
    const std::size_t to = from + std::min(block->bytes(), end - from);
    std::memcpy(block->data(), departure.data + from, to - from);
    for (const WeightedRank& reader : departure.readers) {
      Connection* const connection = needs_rest(reader);
      if (connection != nullptr && connection->out.position() < to) {
        const std::size_t at = connection->out.position();
        connection->out.stage({block->data() + (at - from), to - at}, block);
      }
    }
    from = to;
  }
}

bool TcpTransport::abort(Departure& departure, std::string_view reason) {
  const Lock lock(mutex_);
  for (const WeightedRank& reader : departure.readers) {
    Connection* const connection = find(reader.rank, channel_of(departure.lane));
    if (departure.announced && connection != nullptr &&
        connection->out.is_under_way(departure.header.id)) {
      connection->out.abort(reason);
      connection->out.flush();
      note_sent(*connection);
    }
  }
  departure.announced = true;
  departure.published = departure.header.bytes;
  return true;
}

// ---- reading

const MessageHeader* TcpTransport::arrived(int source, Lane lane) {
  const Lock lock(mutex_);
  const Connection* const connection = find(source, channel_of(lane));
  const MessageHeader* const header = connection == nullptr ? nullptr : connection->in.arrived();
  if (header == nullptr) {
    use(source, kWordChannel);  // tells this rank of the source's end
    return nullptr;
  }
  peer(source).seen = {.call = header->id.call(), .kind = header->envelope.kind};
  return header;
}

std::span<const std::byte> TcpTransport::readable(int source, Lane lane) {
  const Lock lock(mutex_);
  const Connection* const connection = find(source, channel_of(lane));
  return connection == nullptr ? std::span<const std::byte>{} : connection->in.readable();
}

void TcpTransport::consume(int source, Lane lane, std::size_t bytes) {
  const Lock lock(mutex_);
  if (Connection* const connection = find(source, channel_of(lane))) {
    connection->in.consume(bytes);
    connection->update_events(readiness_, wants_more(*connection));
  }
}

bool TcpTransport::at_end(int source, Lane lane) const {
  const Lock lock(mutex_);
  const Connection* const connection = find(source, channel_of(lane));
  return connection == nullptr || connection->in.at_end();
}

std::optional<std::string> TcpTransport::aborted(int source, Lane lane) {
  const Lock lock(mutex_);
  const Connection* const connection = find(source, channel_of(lane));
  return connection == nullptr ? std::nullopt : connection->in.aborted();
}

void TcpTransport::finish(int source, Lane lane) {
  const Lock lock(mutex_);
  Connection* const connection = find(source, channel_of(lane));
  if (connection == nullptr) {
    return;
  }
  connection->in.finish();
  connection->update_events(readiness_, wants_more(*connection));
  if (lane == Lane::Deep) {
    send_word(source, FrameFront::numbered(FrameKind::Receipt, connection->in.taken()));
  }
}

// ---- words between ranks

void TcpTransport::send_word(int rank, const FrameFront& front, std::string_view text) {
  if (is_gone(peer(rank))) {
    return;
  }
  Connection& connection = use(rank, kWordChannel);
  if (connection.out.waiting() >= kMostWaitingWords) {
    return;
  }
  connection.out.add(front, text);
  connection.out.flush();
  note_sent(connection);
}

void TcpTransport::send_control(int rank, const ControlMessage& message) {
  const Lock lock(mutex_);
  const auto text = std::string_view(message.text).substr(0, WordReader::kMostTextBytes);
  send_word(rank,
            FrameFront::numbered(FrameKind::Word, message.call, text.size(),
                                 static_cast<std::uint8_t>(message.kind)),
            text);
}

std::optional<std::pair<int, ControlMessage>> TcpTransport::poll_control() {
  const Lock lock(mutex_);
  if (words_.empty()) {
    return std::nullopt;
  }
  auto oldest = std::move(words_.front());
  words_.pop_front();
  return oldest;
}

// ---- other ranks' ends

std::string TcpTransport::last_seen_of(const Peer& peer) const {
  if (peer.seen.call == 0) {
    return "no message of it has come yet";
  }
  return fmt::format("its last message here was of {}, {}", call_text(peer.seen.call),
                     name_of(peer.seen.kind));
}

std::string TcpTransport::last_seen(int rank) const {
  const Lock lock(mutex_);
  return last_seen_of(peer(rank));
}

Transport::SeenCall TcpTransport::last_call(int rank) const {
  const Lock lock(mutex_);
  return peer(rank).seen;
}

std::optional<std::string> TcpTransport::cause_of_death(int rank) {
  const Lock lock(mutex_);
  Peer& of = peer(rank);
  judge(of);
  if (!of.failure.empty()) {
    return fmt::format("{} ({})", of.failure, last_seen_of(of));
  }
  // Messages that it sent before it left come first, as far as anybody asks for them.
  const bool has_said_all = std::ranges::all_of(of.connections, [](const auto& connection) {
    return !connection || connection->state != Connection::State::Open;
  });
  if (of.has_left && has_said_all && of.said_all_at && of.said_all_at->expired()) {
    return fmt::format("that rank has closed its context ({})", last_seen_of(of));
  }
  return std::nullopt;
}

bool TcpTransport::has_died(int rank) {
  const Lock lock(mutex_);
  judge(peer(rank));
  return !peer(rank).failure.empty();
}

bool TcpTransport::has_left(int rank) {
  const Lock lock(mutex_);
  return peer(rank).has_left && peer(rank).failure.empty();
}

}  // namespace bluefog::tcp
