#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "bluefog_cpp/device/calls/call_streams.hpp"
#include "bluefog_cpp/device/calls/device_payloads.hpp"
#include "bluefog_cpp/device/calls/neighbor_agreement.hpp"
#include "bluefog_cpp/device/calls/rank_meeting.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// A call whose buffers are on a device: the operation for the CPU, with its exchanges of device
/// memory (`ExchangeSpec::device`) carried out on the device's stream.
///
/// Neighbours agree on an exchange before it is launched (`NeighborAgreement`). So calls that do
/// not match, refusals, ranks that do not come and send weights are known before any byte moves on
/// a device, as on the CPU; and since messages of a later call are not sent before this one is
/// launched, all ranks launch in the same order. The call is complete when everything is launched.
///
/// A link may offer payloads (`DeviceLink::offers`): before the neighbours' terms, and in its turn,
/// after all that earlier calls launch.
///
/// Messages of an exchange of `Consumption::OnWait` are kept in memory of the call's own, and the
/// call rests until somebody waits for it: the result comes after what is on the streams by then.
///
/// A call whose streams capture a CUDA graph goes into it: nothing runs, and nothing is watched
/// afterwards. It is complete when it is in the graph of every rank, also where its result
/// is held back: then its last part goes there at the `wait`. So that all ranks replay alike, they
/// meet twice, before any of it is in a graph and at its end; an error on one is an error on all.
class DeviceCall final : public Operation,
                         private Supply,
                         public std::enable_shared_from_this<DeviceCall> {
 public:
  /// The call comes after what is on the streams by now. `operation` keeps its buffers alive: it is
  /// kept until the device has done with them.
  /// @param consumption of the operation's exchanges on the device.
  /// @param capture that both streams are in.
  DeviceCall(std::shared_ptr<DeviceChannel> channel, int rank, std::shared_ptr<Operation> operation,
             const DeviceStreams& streams, Consumption consumption,
             std::optional<std::uint64_t> capture);
  ~DeviceCall() override;

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  bool next(ExchangeSpec& spec) override;
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override;
  void give_up() noexcept override;

  /// Somebody is about to wait: a result that was kept back until then comes after what is on the
  /// streams, and on that one, by now. From any thread.
  void note_waiter(WaitingStream waiting);
  /// "rank 1, call 7, neighbor_allreduce(float32[1024] on CUDA)".
  [[nodiscard]] std::string describe() const;

  [[nodiscard]] bool is_captured() const noexcept { return capture_.has_value(); }
  /// Puts what was held back into the graph, once a captured call is complete. Under the engine's
  /// mutex.
  void finish_capture(WaitingStream waiting);
  /// Ends the part of a captured call that has failed: what went into the graph before stands for
  /// itself.
  void leave_capture() noexcept;
  /// Checks that the streams, and that one, capture as the call's did when it was made.
  /// @throws StateError if not: they cannot be ordered then.
  void check_capture(WaitingStream waiting);
  /// Once complete: what comes later on the streams, and on that one, waits for the results.
  void order_streams(WaitingStream waiting) { streams_.order(waiting, done()); }
  /// Whether the channel has ended before the device was done.
  [[nodiscard]] bool is_cut_short() const noexcept {
    return cut_short_.load(std::memory_order_acquire);
  }
  /// Once complete: happens when the device is done.
  [[nodiscard]] gpu::EventHandle done() const noexcept { return done_->get(); }

 private:
  enum class Stage : std::uint8_t {
    Begin,
    /// All ranks capture the call.
    Meeting,
    /// All ranks have captured it.
    Parting,
    /// The operation exchanges on the host.
    Host,
    /// Neighbours agree to an exchange on the device.
    Agreement,
    /// Messages are kept until somebody waits.
    Rest,
  };

  void begin();
  void describe_meeting(ExchangeSpec& spec);
  /// Everything is on the stream. @return whether an exchange follows all the same.
  [[nodiscard]] bool end(ExchangeSpec& spec);
  /// Takes memory for what the exchange brings. @throws CudaError: the call is refused, or in a
  /// later exchange than its first ends the channel.
  void place_receives();
  /// The error of CUDA or NCCL as this call's.
  [[nodiscard]] std::exception_ptr of_this_call(std::exception_ptr error) const;
  void offer();
  /// Supplies the terms for neighbours in their turn, after the launches of earlier calls.
  [[nodiscard]] std::size_t bytes_here() override;
  void describe_agreement(ExchangeSpec& spec);
  void throw_if_ended() const;
  void launch();
  void enqueue();
  [[nodiscard]] OpKind placed(OpKind kind) const noexcept;
  void describe_rest(ExchangeSpec& spec) const;
  void combine();
  /// Watches what was launched until it is done.
  void watch();
  /// Watches it on the way of an error: keeps for good whatever cannot be watched.
  void watch_what_there_is() noexcept;

  std::shared_ptr<DeviceChannel> channel_;
  int rank_;
  std::shared_ptr<Operation> operation_;
  Envelope envelope_;
  Consumption consumption_;
  std::optional<std::uint64_t> capture_;
  CallStreams streams_;
  NeighborAgreement agreement_;
  DevicePayloads payloads_;
  /// Null but for a captured call.
  std::optional<RankMeeting> meeting_;
  std::shared_ptr<const gpu::Event> done_;
  std::atomic<bool> cut_short_{false};
  Stage stage_ = Stage::Begin;
  /// `finish_capture` forms the result of a captured call.
  bool is_held_back_ = false;
  /// The terms for neighbours are whole; payloads are on their way to where neighbours find them.
  bool is_offered_ = false;
  /// Payloads are on their way, and nobody watches until they have arrived.
  bool has_offer_ = false;
  /// The operation's exchange that is agreed on or launched.
  ExchangeSpec exchange_{};
};

}  // namespace bluefog
