#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

struct Letter;

/// Bytes that go to some ranks, the same to each; the weight travels along.
struct Outgoing {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::span<const WeightedRank> readers{};
};

/// A message that is expected. The weight is what this rank gives to it.
struct Incoming {
  WeightedRank source{};
  std::size_t bytes = 0;
  /// On a device: where the message goes as it is; null: `receive` gets it.
  std::byte* place = nullptr;
};

/// How the messages of several sources are used.
enum class Pace : std::uint8_t {
  /// Piece by piece at the same offset of all sources, which have the same length.
  Together,
  /// Each on its own, as it arrives.
  Each,
};

/// When an exchange may use what has arrived.
enum class Consumption : std::uint8_t {
  AsItArrives,
  /// Only once somebody waits for the work: what it writes may not change earlier.
  OnWait,
};

/// With up to so many neighbours an exchange needs no memory beside its operation's own: as many
/// as the exponential graph of 256 ranks gives each.
inline constexpr std::size_t kInlineNeighbors = 8;

/// Ranks that a call waits for. A wait is looked at again and again, so that lists of usual
/// length take no memory.
using AwaitedRanks = boost::container::small_vector<int, kInlineNeighbors>;

/// The payload of an exchange that comes while the exchange is under way: from a device, or from
/// whoever has to do something when the exchange's turn to send has come.
class Supply {
 public:
  /// How much of it is in the host's memory, from its beginning; a multiple of 64 bytes but at its
  /// end. Asked for when all earlier calls have sent everything.
  [[nodiscard]] virtual std::size_t bytes_here() = 0;

 protected:
  ~Supply() = default;
};

/// One exchange: what this rank sends, and what it expects.
///
/// The spans and the memory they lead to stay valid until the exchange ends.
struct ExchangeSpec {
  Envelope envelope{};
  std::span<const Outgoing> outgoing{};
  std::span<const Incoming> incoming{};
  Pace pace = Pace::Together;
  Lane lane = Lane::Ordinary;
  Consumption consumption = Consumption::AsItArrives;
  /// True if arriving pieces are written over the (single) outgoing payload, at the same offset.
  /// They then wait until that part of the payload has been copied out.
  bool overwrites_payload = false;
  /// With `Pace::Together`: bytes to combine; also runs without any source.
  std::size_t bytes = 0;
  /// The memory of outgoing and incoming messages alike. On a device `receive` is called with
  /// whole messages, and what it does there is ordered by the channel's stream.
  DeviceKind device = DeviceKind::Cpu;
  /// Not null while outgoing payloads are still to come. With `Pace::Together`, on ordinary lanes
  /// and those of pairs, for a single payload, at whose offsets pieces are combined.
  Supply* supply = nullptr;
  /// Nothing that arrives changes a buffer of the caller's.
  bool keeps_buffers = false;
  /// The call has changed buffers by itself before this exchange, this rank's or others'.
  bool follows_change = false;
  /// Ranks whose offers (`offering`) in this call, and in earlier ones that have ended, nobody here
  /// needs: they are dropped, whenever they come.
  std::span<const WeightedRank> unneeded_offers{};
  /// Not null on the lane of mail: the address under which the message is sent or looked for.
  const Letter* letter = nullptr;
  /// Its number in the call is no lower. For exchanges before which ranks have made different
  /// numbers of them.
  std::uint32_t least_step = 0;
  /// No further exchange follows in the same call.
  bool last = true;
};

/// An exchange under way, as its messages name it.
struct ExchangeCall {
  ExchangeSpec spec{};
  CallId id{};
  /// This rank.
  int rank = 0;

  /// "rank 0, call 5, barrier", for errors.
  [[nodiscard]] std::string describe() const;
};

/// Part of the message of one source.
struct Piece {
  const std::byte* data = nullptr;
  /// Weight of the receiver times weight of the sender.
  double weight = 1.0;
  /// Index into `ExchangeSpec::incoming`.
  std::size_t source_index = 0;
};

/// Takes the bytes of an exchange as they arrive.
class Receiver {
 public:
  /// `bytes` bytes at `offset` of each piece's message. Called with rising offsets.
  virtual void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) = 0;

 protected:
  ~Receiver() = default;
};

/// Rights of an exchange in one step, given the other exchanges in flight.
struct StepRights {
  /// All earlier calls have sent everything.
  bool may_publish = true;
  /// Somebody waits for this exchange, or nobody ever will.
  bool waited_for = false;
  /// The earliest call of all ranks that has not ended here.
  std::uint64_t first_under_way = 0;
};

}  // namespace bluefog
