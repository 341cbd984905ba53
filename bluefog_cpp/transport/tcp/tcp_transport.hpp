#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "bluefog_cpp/transport/doorbell.hpp"
#include "bluefog_cpp/transport/tcp/connection_table.hpp"
#include "bluefog_cpp/transport/tcp/lobby.hpp"
#include "bluefog_cpp/transport/tcp/publisher.hpp"
#include "bluefog_cpp/transport/tcp/receiver.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::tcp {

/// Messages between processes over TCP.
///
/// A pair of ranks has a connection for each lane, and one for control frames (control messages,
/// receipts, goodbyes, signs of life), each made when one of them first uses it: a lane waits for
/// no other, and control frames wait for none. Payload goes from the caller's memory into the socket,
/// and is received into blocks that the reader combines from. On the ordinary lane a reader takes
/// in what it has room for, and TCP holds the writer back; on deep lanes it takes whole messages. A
/// message of the lane `Deep` waits until its readers have taken the last one of its name.
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
  [[nodiscard]] bool has_stream_per_reader() const noexcept override { return true; }
  [[nodiscard]] bool reaches(int rank) const noexcept override { return rank != rank_; }
  bool publish(Departure& departure) override;
  bool abort(Departure& departure, std::string_view reason) override;
  [[nodiscard]] const MessageHeader* arrived(int source, Lane lane) override;
  [[nodiscard]] bool has_all_before(int source, Lane lane) override;
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

  [[nodiscard]] static constexpr std::size_t channel_of(Lane lane) noexcept {
    return static_cast<std::size_t>(lane);
  }
  [[nodiscard]] Connection* find(int rank, Lane lane) const noexcept {
    return table_.find(rank, channel_of(lane));
  }
  void send_control_frame(int rank, const FrameFront& front, std::string_view text = {});
  void ring_bell() noexcept;
  std::optional<Answer::Verdict> on_call(int rank, std::size_t channel) override;
  bool is_awaited(int rank, std::size_t channel) override;
  void on_open(int rank, std::size_t channel, shm::UniqueFd socket) override;
  void on_failed(int rank, std::size_t channel, const std::string& why) override;
  void on_ready() override;
  void on_tick() override;

  // The end (tcp_transport_end.cpp).
  void say_goodbye();
  void pump_until(Lock& lock, Deadline deadline, const std::function<bool()>& done);

  int rank_;
  std::chrono::milliseconds tick_{1000};  ///< between two looks of the lobby
  mutable std::mutex mutex_;
  ConnectionTable table_;
  Publisher publisher_;
  Receiver receiver_;
  Doorbell* bell_ = nullptr;
  /// Nobody looks: the thread does.
  bool is_watched_ = false;
  bool is_armed_ = false;
  std::unique_ptr<Lobby> lobby_;
};

}  // namespace bluefog::tcp
