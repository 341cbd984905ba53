#pragma once

#include <array>
#include <atomic>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/work.hpp"

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
///
/// Where the link offers payloads (`DeviceLink::offers`), that comes before the neighbours' words,
/// and in its turn: after all that earlier calls launch.
///
/// What an exchange of `Consumption::OnWait` receives is kept in memory of the call's own, and the
/// call rests until somebody waits for it: the result comes after what is on the streams by then.
///
/// Where the streams capture a CUDA graph, the call goes into it: nothing runs, and nothing is watched
/// afterwards. It is complete when it is in the graph of every rank, also where its result is held
/// back: then its last part goes there at the `wait`. So that all ranks replay alike, they meet twice,
/// before any of it is in a graph and at its end; an error on one is an error on all.
class DeviceCall final : public Operation,
                         private Supply,
                         public std::enable_shared_from_this<DeviceCall> {
 public:
  /// What is on the streams by now comes before the call. `operation` keeps its buffers alive: it
  /// is kept until the device has done with them.
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

  /// Somebody is about to wait: what is on the streams, and on that one, by now comes before a result
  /// that was kept back until then. From any thread.
  void note_waiter(WaitingStream waiting);
  /// "rank 1, call 7, neighbor_allreduce(float32[1024] on CUDA)".
  [[nodiscard]] std::string describe() const;

  [[nodiscard]] bool is_captured() const noexcept { return capture_.has_value(); }
  /// Once complete, of a call that is captured: what was held back goes into the graph. Under the
  /// engine's mutex.
  void finish_capture(WaitingStream waiting);
  /// Of a call that is captured and has failed: what went into the graph before stands for itself.
  void leave_capture() noexcept;
  /// Whether the streams, and that one, capture as the call's did when it was made.
  /// @throws StateError if not: they cannot be ordered then.
  void check_capture(WaitingStream waiting) const;
  /// Once complete: what comes later on the streams, and on that one, waits for the results.
  void order_streams(WaitingStream waiting);
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
    /// An exchange of the operation's on the host.
    Host,
    /// Neighbours agree to an exchange on the device.
    Agreement,
    /// What came is kept until somebody waits.
    Rest,
  };

  /// What two neighbours tell each other before an exchange.
  struct Terms {
    std::uint64_t sends = 0;
    std::uint64_t expects = 0;
    double weight = 1.0;
    /// Exchanges with the other rank that this one has launched so far.
    std::uint64_t launched = 0;
    DeviceOffer offer{};
  };
  using ReadyEvents = boost::container::small_vector<gpu::Event, 2>;
  struct Neighbor {
    WeightedRank rank{};
    Terms own{};
    Terms theirs{};
  };

  void begin();
  /// Every rank hears every other.
  void describe_meeting(ExchangeSpec& spec);
  /// Everything is on the stream. @return whether an exchange follows all the same.
  [[nodiscard]] bool end(ExchangeSpec& spec);
  void find_neighbors();
  /// What the exchange sends and to whom, as the link takes it.
  void list_sends();
  /// What it brings, and where it goes, message by message. Takes the memory for it: no neighbour
  /// has agreed on the exchange yet. @throws CudaError: the call is refused, or in a later exchange
  /// than its first ends the channel.
  void list_receives();
  void place_receives();
  /// What CUDA or NCCL said, of this call.
  [[nodiscard]] std::exception_ptr of_this_call(std::exception_ptr error) const;
  void offer();
  /// Of the words to neighbours, in their turn: what they say of earlier calls, and the offer itself.
  [[nodiscard]] std::size_t bytes_here() override;
  void describe_agreement(ExchangeSpec& spec);
  void check_terms(const Neighbor& neighbor) const;
  /// That both have launched the same exchanges so far: else a payload would be taken for that of
  /// another call. @throws PeerFailure.
  void check_launched() const;
  void throw_if_ended() const;
  void launch();
  void enqueue();
  [[nodiscard]] bool keeps_messages() const noexcept;
  [[nodiscard]] OpKind placed(OpKind kind) const noexcept;
  void describe_rest(ExchangeSpec& spec) const;
  void combine();
  /// The call's own, each once, and that of somebody who waits, if it is another one.
  using SomeStreams = boost::container::small_vector<gpu::StreamHandle, 3>;
  [[nodiscard]] SomeStreams streams_with(WaitingStream waiting) const;
  /// `ready` happens when what is on the streams by now is done.
  void record_streams(ReadyEvents& ready, WaitingStream waiting);
  void wait_for(const ReadyEvents& ready);
  /// What was launched is watched until it is done.
  void watch();
  /// As `watch`, on the way of an error. What cannot be watched is kept for good.
  void watch_what_there_is() noexcept;
  Neighbor& neighbor_of(int rank);

  std::shared_ptr<DeviceChannel> channel_;
  int rank_;
  std::shared_ptr<Operation> operation_;
  DeviceStreams streams_;
  Envelope envelope_;
  Consumption consumption_;
  std::optional<std::uint64_t> capture_;
  ReadyEvents ready_;
  std::shared_ptr<const gpu::Event> done_;
  std::once_flag has_waiter_;
  ReadyEvents ready_at_wait_;
  std::atomic<bool> cut_short_{false};
  Stage stage_ = Stage::Begin;
  /// Of a call that is captured: `finish_capture` forms the result.
  bool is_held_back_ = false;
  /// The operation's exchange that is agreed on or launched.
  ExchangeSpec exchange_{};
  boost::container::small_vector<DeviceSend, kInlineNeighbors> sends_;
  boost::container::small_vector<DeviceReceive, kInlineNeighbors> receives_;
  boost::container::small_vector<Piece, kInlineNeighbors> pieces_;
  /// The words to neighbours are whole; payloads are on their way to where neighbours find them.
  bool is_offered_ = false;
  /// And nobody watches that.
  bool has_offer_ = false;
  /// Where the pieces are, when they are kept.
  gpu::MemoryBlock kept_;
  std::vector<Neighbor> neighbors_;
  /// The first of them: those that are asked in this exchange.
  std::size_t asked_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  /// Of a call that is captured.
  std::vector<WeightedRank> everyone_;
  /// Ranks that have agreed to this call.
  std::vector<int> partners_;
};

}  // namespace bluefog
