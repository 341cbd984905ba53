#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bluefog_cpp/device/calls/launch_counts.hpp"
#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

/// The agreement of a call's neighbours on its exchanges of device memory: each states to the
/// other, in a message through the host's transports, how much it sends and expects, its send
/// weight and how many exchanges it has launched, and, where the link offers payloads, where its
/// own lies.
///
/// For each exchange: `begin`, `describe`, the `complete` and `set_offer` of its own terms,
/// `receive` until the messages have come, and `check_launched` before the launch.
class NeighborAgreement {
 public:
  /// How often two neighbours agree in a call.
  enum class Asking : std::uint8_t {
    /// In its first exchange: what they exchange later follows from the same numbers.
    Once,
    /// In each, since they offer each other payloads.
    EachTime,
  };

  /// @param launches of the channel, which outlives the agreement.
  /// @param call describes the call in messages: "rank 1, call 7, neighbor_allreduce(float32[4])".
  NeighborAgreement(int rank, LaunchCounts& launches, Asking asking,
                    std::function<std::string()> call)
      : rank_(rank), launches_(launches), asking_(asking), call_(std::move(call)) {}

  /// Counts what each neighbour in `exchange` is sent and is to send.
  void begin(const ExchangeSpec& exchange);
  /// Fills in the messages. There are none where all have agreed before, but the exchange counts
  /// on all ranks, whoever takes part in it.
  void describe(ExchangeSpec& spec);
  /// Bytes of a message.
  [[nodiscard]] static constexpr std::size_t message_bytes() noexcept { return sizeof(Terms); }

  /// Completes this rank's terms when their turn to be sent has come: earlier calls have launched.
  void complete();
  /// Adds where the reader's payload lies. @throws InternalError unless it is its only one.
  void set_offer(const DeviceSend& send);

  /// Takes `bytes` bytes at `offset` of the message of that source.
  /// @throws MismatchError where the two ranks' terms do not match.
  void receive(std::size_t source_index, std::size_t offset, const std::byte* data,
               std::size_t bytes);
  /// Checks that both sides have launched the same exchanges so far: else a payload would be taken
  /// for another call's. Only right before the launch: a neighbour that is ahead may have spoken
  /// before this rank had come so far.
  /// @throws PeerFailure.
  void check_launched() const;
  /// Counts the exchange as launched, where payloads are not offered.
  void note_launched();

  /// The send weight that a source has sent.
  [[nodiscard]] double weight_of(int source) const { return terms_of(source).weight; }
  /// The place of its payload that a source has sent.
  [[nodiscard]] const DeviceOffer& offer_of(int source) const { return terms_of(source).offer; }
  /// Ranks that have agreed on an exchange of the call, this one's included.
  [[nodiscard]] const std::vector<int>& partners() const noexcept { return partners_; }

 private:
  /// A message of the agreement.
  struct Terms {
    std::uint64_t sends = 0;
    std::uint64_t expects = 0;
    double weight = 1.0;
    /// Exchanges with the other rank that the writer has launched so far.
    std::uint64_t launched = 0;
    DeviceOffer offer{};
  };
  struct Neighbor {
    WeightedRank rank{};
    Terms own{};
    Terms theirs{};
  };

  /// The neighbour of that rank, which is added where it is new.
  Neighbor& neighbor_of(int rank);
  [[nodiscard]] const Terms& terms_of(int source) const;
  [[nodiscard]] bool is_partner(int rank) const;
  void check_terms(const Neighbor& neighbor) const;

  int rank_;
  LaunchCounts& launches_;
  Asking asking_;
  std::function<std::string()> call_;
  /// The neighbours that are asked in this exchange, and then the others.
  std::vector<Neighbor> neighbors_;
  std::size_t asked_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<int> partners_;
};

}  // namespace bluefog
