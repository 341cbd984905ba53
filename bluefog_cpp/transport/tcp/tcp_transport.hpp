#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/doorbell.hpp"
#include "bluefog_cpp/transport/tcp/connection.hpp"
#include "bluefog_cpp/transport/tcp/lobby.hpp"
#include "bluefog_cpp/transport/tcp/readiness.hpp"
#include "bluefog_cpp/transport/tcp/word_reader.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::tcp {

struct TcpTransportOptions {
  /// Bytes that the system buffers on a connection, each way; 0: as many as it thinks right.
  int socket_bytes = 0;
  /// A host that answers nothing for so long is gone.
  std::chrono::milliseconds silence{20'000};
};

/// Messages between processes over TCP.
///
/// A pair of ranks has a connection for each lane, and one for words (control messages, receipts,
/// goodbyes, signs of life), each made when one of them first uses it: a lane waits for no other, and
/// words wait for none. Payload goes from the caller's memory into the socket, and is received into
/// blocks that the reader combines from. On the ordinary lane a reader takes in what it has room for,
/// and TCP holds the writer back; on deep lanes it takes whole messages. A message of the lane `Deep`
/// waits until its readers have taken the last one of its name.
///
/// Whoever looks moves the bytes. While nobody does, the lobby's thread moves them and rings the
/// bell, so that nothing has to be polled. Thread-safe.
class TcpTransport final : public Transport, private LobbyGuest {
 public:
  /// @param lobby listens already; `guests` says where the other ranks do.
  TcpTransport(std::unique_ptr<Lobby> lobby, Lobby::Options guests,
               const TcpTransportOptions& options);
  /// Says goodbye and waits a little for what is still on its way.
  ~TcpTransport() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "tcp"; }
  [[nodiscard]] bool reaches(int rank) const noexcept override { return rank != rank_; }
  bool publish(Departure& departure) override;
  bool abort(Departure& departure, std::string_view reason) override;
  [[nodiscard]] const MessageHeader* arrived(int source, Lane lane) override;
  [[nodiscard]] std::span<const std::byte> readable(int source, Lane lane) override;
  void consume(int source, Lane lane, std::size_t bytes) override;
  [[nodiscard]] bool at_end(int source, Lane lane) const override;
  [[nodiscard]] std::optional<std::string> aborted(int source, Lane lane) override;
  void finish(int source, Lane lane) override;
  void send_control(int rank, const ControlMessage& message) override;
  [[nodiscard]] std::optional<std::pair<int, ControlMessage>> poll_control() override;
  bool progress() override;
  [[nodiscard]] std::optional<std::string> cause_of_death(int rank) override;
  [[nodiscard]] bool has_died(int rank) override;
  [[nodiscard]] bool has_left(int rank) override;
  [[nodiscard]] SeenCall last_call(int rank) const override;
  [[nodiscard]] std::string last_seen(int rank) const override;
  void note_call(CallId, OpKind) override {}
  bool ring(Doorbell* bell) override;
  void watch(Watch watch) override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// A message whose reader has not said yet that it took it.
  struct Untaken {
    CallId id{};
    std::uint32_t name_hash = 0;
  };
  static constexpr std::chrono::milliseconds kLateConnections{500};
  struct Peer {
    std::array<std::unique_ptr<Connection>, kChannelCount> connections{};
    std::optional<WordReader> words{};
    std::deque<Untaken> untaken{};
    std::uint64_t taken = 0;
    bool has_left = false;
    /// When no connection with its last messages comes any more.
    std::optional<Deadline> said_all_at{};
    /// Why the rank is gone without having left; empty while it is not.
    std::string failure{};
    /// When a lane's connection ended although nobody said goodbye.
    std::optional<Deadline> verdict_at{};
    /// The last message of the rank that was looked at.
    SeenCall seen{};
  };

  [[nodiscard]] Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::string last_seen_of(const Peer& peer) const;
  [[nodiscard]] Connection* find(int rank, std::size_t channel) const {
    return peer(rank).connections[channel].get();
  }
  /// The connection, which is called for where it is idle.
  Connection& use(int rank, std::size_t channel);
  void ask(Connection& connection);
  [[nodiscard]] bool is_gone(const Peer& peer) const {
    return peer.has_left || !peer.failure.empty();
  }

  // Writing (tcp_transport.cpp).
  bool publish_ordinary(Departure& departure);
  bool publish_deep(Departure& departure);
  [[nodiscard]] static bool may_wait(const Departure& departure, const Connection& connection);
  void begin(Departure& departure);
  void stage_rest(const Departure& departure, std::size_t end);
  [[nodiscard]] bool is_held_back(const Departure& departure) const;
  void note_sent(Connection& connection);
  void send_word(int rank, const FrameFront& front, std::string_view text = {});

  // Moving bytes (tcp_transport_io.cpp).
  bool pump();
  bool read(Connection& connection);
  [[nodiscard]] bool wants_more(const Connection& connection) const noexcept;
  void take_words(Connection& connection, std::span<const std::byte> bytes);
  void hear(Peer& peer, int rank, WordReader::Heard& heard);
  void end(Connection& connection, int error);
  void break_off(int rank, const std::string& why);
  void judge(Peer& peer);
  void ring_bell() noexcept;
  std::optional<Answer::Verdict> on_call(int rank, std::size_t channel) override;
  void on_open(int rank, std::size_t channel, shm::UniqueFd socket) override;
  void on_failed(int rank, std::size_t channel, const std::string& why) override;
  void on_ready() override;
  void on_tick() override;
  void set_options(const Connection& connection) const noexcept;

  // The end (tcp_transport_end.cpp).
  void say_goodbye();
  [[nodiscard]] bool any(const std::function<bool(const Connection&)>& is_so) const;
  void pump_until(Lock& lock, Deadline deadline, const std::function<bool()>& done);

  int rank_;
  TcpTransportOptions options_;
  mutable std::mutex mutex_;
  BlockPool pool_;
  Readiness readiness_;
  std::vector<std::byte> scratch_;
  mutable std::vector<Peer> peers_;
  std::deque<std::pair<int, ControlMessage>> words_;
  std::deque<WordReader::Heard> heard_;
  Doorbell* bell_ = nullptr;
  /// Nobody looks: the thread does.
  bool is_watched_ = false;
  bool is_armed_ = false;
  /// Whether bytes have to be moved also while no call waits: those of deep lanes, and outboxes.
  bool has_background_ = false;
  bool has_deep_lanes_ = false;
  bool is_leaving_ = false;
  std::uint64_t tick_ = 0;
  std::unique_ptr<Lobby> lobby_;
};

}  // namespace bluefog::tcp
