#pragma once

#include <array>
#include <atomic>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "bluefog_cpp/transport/nccl/device_channel.hpp"
#include "bluefog_cpp/transport/operation.hpp"
#include "bluefog_cpp/transport/work.hpp"

namespace bluefog {

/// The streams that a call's input and output are ordered on; they may be the same.
using DeviceStreams = std::array<gpu::StreamHandle, 2>;

/// A call whose buffers are on a device: the operation for the CPU, with its exchanges of device
/// memory (`ExchangeSpec::device`) carried out on the device's stream.
///
/// Before an exchange is launched, the neighbours in it tell each other through the host's
/// transports what they are about to send and expect. So calls that do not match, refusals, ranks
/// that do not come and send weights are known before any byte moves on a device, as on the CPU;
/// and since messages of a later call are not sent before this one is launched, all ranks launch in
/// the same order. The call is complete when everything is launched.
class DeviceCall final : public Operation, public std::enable_shared_from_this<DeviceCall> {
 public:
  /// What is on the streams by now comes before the call. `operation` keeps its buffers alive: it
  /// is kept until the device has done with them.
  DeviceCall(std::shared_ptr<DeviceChannel> channel, int rank, std::shared_ptr<Operation> operation,
             const DeviceStreams& streams);

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  bool next(ExchangeSpec& spec) override;
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override;

  /// Once complete: what comes later on the streams waits for the results.
  void order_streams();
  /// Whether the channel has ended before the device was done.
  [[nodiscard]] bool is_cut_short() const noexcept {
    return cut_short_.load(std::memory_order_acquire);
  }
  /// Once complete: happens when the device is done.
  [[nodiscard]] gpu::EventHandle done() const noexcept { return done_->get(); }

 private:
  enum class Stage : std::uint8_t { Begin, Host, Agreement };

  /// What two neighbours tell each other before an exchange.
  struct Terms {
    std::uint64_t sends = 0;
    std::uint64_t expects = 0;
    double weight = 1.0;
  };
  struct Neighbor {
    WeightedRank rank{};
    Terms own{};
    Terms theirs{};
  };

  void begin();
  void find_neighbors();
  void describe_agreement(ExchangeSpec& spec);
  void check_terms(const Neighbor& neighbor) const;
  void launch();
  void enqueue();
  Neighbor& neighbor_of(int rank);

  std::shared_ptr<DeviceChannel> channel_;
  int rank_;
  std::shared_ptr<Operation> operation_;
  DeviceStreams streams_;
  Envelope envelope_;
  boost::container::small_vector<gpu::Event, 2> ready_;
  std::optional<gpu::Event> done_;
  std::atomic<bool> cut_short_{false};
  Stage stage_ = Stage::Begin;
  /// The operation's exchange that is agreed on or launched.
  ExchangeSpec exchange_{};
  std::vector<Neighbor> neighbors_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  /// Ranks that have agreed to this call.
  std::vector<int> partners_;
};

/// A `DeviceCall` under way: `wait` orders streams, `synchronize` waits for the device.
class DeviceWork final : public Pending {
 public:
  DeviceWork(std::shared_ptr<Engine> engine, std::shared_ptr<DeviceChannel> channel,
             std::shared_ptr<DeviceCall> call)
      : engine_(std::move(engine)), channel_(std::move(channel)), call_(std::move(call)) {}

  void wait() override;
  void synchronize() override;
  [[nodiscard]] bool done() const noexcept override;

 private:
  void throw_if_cut_short() const;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<DeviceChannel> channel_;
  std::shared_ptr<DeviceCall> call_;
};

}  // namespace bluefog
