#include "bluefog_cpp/transport/tcp/tcp_transport.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace bluefog::tcp {

TcpTransport::TcpTransport(std::unique_ptr<Lobby> lobby, Lobby::Options guests,
                           const TcpTransportOptions& options)
    : rank_(guests.rank),
      table_(guests.rank, guests.endpoints.size(), options,
             [this](int rank, std::size_t channel) { lobby_->call(rank, channel); }),
      publisher_(table_),
      receiver_(table_, publisher_),
      lobby_(std::move(lobby)) {
  guests.silence = options.silence;
  guests.watched = table_.readiness().guard();
  const auto shortest = options.heartbeat.count() > 0 ? std::min(options.heartbeat, options.silence)
                                                      : options.silence;
  guests.tick =
      std::clamp(shortest / 4, std::chrono::milliseconds(50), std::chrono::milliseconds(2000));
  tick_ = guests.tick;
  lobby_->open(std::move(guests), *this);
}

// ---- writing

bool TcpTransport::publish(Departure& departure) {
  const Lock lock(mutex_);
  return publisher_.publish(departure);
}

bool TcpTransport::abort(Departure& departure, std::string_view reason) {
  const Lock lock(mutex_);
  publisher_.abort(departure, reason);
  return true;
}

// ---- reading

const MessageHeader* TcpTransport::arrived(int source, Lane lane) {
  const Lock lock(mutex_);
  const Connection* const connection = find(source, lane);
  const MessageHeader* const header = connection == nullptr ? nullptr : connection->in.arrived();
  if (header == nullptr) {
    table_.use(source, kControlChannel);  // shows the source's end
    return nullptr;
  }
  table_.peer(source).note_seen(*header);
  return header;
}

bool TcpTransport::has_all_before(int source, Lane lane) {
  const std::optional<Lane> other = lane_beside(lane);
  const Lock lock(mutex_);
  const Connection* const connection = find(source, lane);
  const Connection* const beside = other ? find(source, *other) : nullptr;
  const std::uint64_t come = beside == nullptr ? 0 : beside->in.come();
  return connection == nullptr || connection->in.on_other_lane() <= come;
}

std::span<const std::byte> TcpTransport::readable(int source, Lane lane) {
  const Lock lock(mutex_);
  const Connection* const connection = find(source, lane);
  return connection == nullptr ? std::span<const std::byte>{} : connection->in.readable();
}

void TcpTransport::consume(int source, Lane lane, std::size_t bytes) {
  const Lock lock(mutex_);
  if (Connection* const connection = find(source, lane)) {
    connection->in.consume(bytes);
    table_.update_events(*connection);
  }
}

bool TcpTransport::at_end(int source, Lane lane) const {
  const Lock lock(mutex_);
  const Connection* const connection = find(source, lane);
  return connection == nullptr || connection->in.at_end();
}

std::optional<std::string> TcpTransport::aborted(int source, Lane lane) {
  const Lock lock(mutex_);
  const Connection* const connection = find(source, lane);
  return connection == nullptr ? std::nullopt : connection->in.aborted();
}

void TcpTransport::finish(int source, Lane lane) {
  const Lock lock(mutex_);
  Connection* const connection = find(source, lane);
  if (connection == nullptr) {
    return;
  }
  connection->in.finish();
  table_.update_events(*connection);
  if (lane == Lane::Deep) {
    send_control_frame(source, FrameFront::numbered(FrameKind::Receipt, connection->in.taken()));
  }
}

// ---- control frames

void TcpTransport::send_control_frame(int rank, const FrameFront& front, std::string_view text) {
  if (table_.peer(rank).is_gone()) {
    return;
  }
  Connection& connection = table_.use(rank, kControlChannel);
  if (connection.out.waiting() >= kMostWaitingControls) {
    return;
  }
  connection.out.add(front, text);
  table_.note_sent(connection);
}

void TcpTransport::send_control(int rank, const ControlMessage& message) {
  const Lock lock(mutex_);
  const auto text = std::string_view(message.text).substr(0, ControlReader::kMostTextBytes);
  send_control_frame(rank,
                     FrameFront::numbered(FrameKind::Control, message.call, text.size(),
                                          static_cast<std::uint8_t>(message.kind)),
                     text);
}

std::optional<std::pair<int, ControlMessage>> TcpTransport::poll_control() {
  const Lock lock(mutex_);
  return receiver_.next_control();
}

// ---- other ranks' ends

std::string TcpTransport::last_seen(int rank) const {
  const Lock lock(mutex_);
  return table_.peer(rank).last_seen();
}

Transport::SeenCall TcpTransport::last_call(int rank) const {
  const Lock lock(mutex_);
  return table_.peer(rank).seen();
}

std::optional<std::string> TcpTransport::cause_of_death(int rank) {
  const Lock lock(mutex_);
  Peer& of = table_.peer(rank);
  of.judge();
  return of.cause_of_death();
}

bool TcpTransport::has_died(int rank) {
  const Lock lock(mutex_);
  Peer& of = table_.peer(rank);
  of.judge();
  return of.has_failed();
}

bool TcpTransport::has_left(int rank) {
  const Lock lock(mutex_);
  const Peer& of = table_.peer(rank);
  return of.has_left() && !of.has_failed();
}

// ---- who moves the bytes

bool TcpTransport::progress() {
  const Lock lock(mutex_);
  is_watched_ = false;
  if (std::exchange(is_armed_, false)) {
    table_.readiness().disarm();
  }
  return receiver_.pump();
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
  table_.look_at_background();
  if (watch == Watch::ForSleeper || table_.has_background()) {
    is_watched_ = true;
    if (!std::exchange(is_armed_, true)) {
      table_.readiness().arm();
    }
  }
}

void TcpTransport::on_ready() {
  const Lock lock(mutex_);
  table_.readiness().take();
  is_armed_ = false;
  if (is_watched_) {
    if (receiver_.pump()) {
      ring_bell();
    }
    is_armed_ = true;
    table_.readiness().arm();
  }
}

void TcpTransport::on_tick() {
  const Lock lock(mutex_);
  table_.note_tick();
  bool has_news = receiver_.pump();
  table_.send_signs_of_life();
  has_news |= table_.break_with_the_silent(tick_);
  for (Peer& peer : table_.peers()) {
    has_news |= peer.judge();
  }
  if (has_news) {
    ring_bell();
  }
}

// ---- events of the lobby

std::optional<Answer::Verdict> TcpTransport::on_call(int rank, std::size_t channel) {
  const Lock lock(mutex_);
  return table_.on_call(rank, channel);
}

bool TcpTransport::is_awaited(int rank, std::size_t channel) {
  const Lock lock(mutex_);
  const Connection* const connection = table_.find(rank, channel);
  return connection != nullptr && connection->state == Connection::State::Asked;
}

void TcpTransport::on_open(int rank, std::size_t channel, shm::UniqueFd socket) {
  const Lock lock(mutex_);
  if (!table_.open(rank, channel, std::move(socket))) {
    return;
  }
  if (table_.has_background() && !is_watched_ && !is_armed_) {
    is_watched_ = is_armed_ = true;  // whoever drives takes it back
    table_.readiness().arm();
  }
  ring_bell();
}

void TcpTransport::on_failed(int rank, std::size_t channel, const std::string& why) {
  const Lock lock(mutex_);
  const Connection* const connection = table_.find(rank, channel);
  if (connection != nullptr && connection->state == Connection::State::Open) {
    return;  // that rank's own call came
  }
  table_.break_off(rank, why);
  ring_bell();
}

}  // namespace bluefog::tcp
