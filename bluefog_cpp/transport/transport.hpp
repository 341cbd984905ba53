#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

class Doorbell;

/// One outgoing message on its way to the readers that one transport reaches.
struct Departure {
  MessageHeader header{};
  const std::byte* data = nullptr;
  /// The ranks that read it; the weight goes into the header that each one sees.
  std::span<const WeightedRank> readers{};
  Lane lane = Lane::Ordinary;
  /// Bytes of `data` that are there: the rest is still on its way from a device.
  std::size_t here = std::numeric_limits<std::size_t>::max();
  /// Calls of all ranks before this one have ended at their writer.
  std::uint64_t first_under_way = 0;

  /// Bytes that have been copied out, so that the caller may overwrite them: any number of them.
  std::size_t published = 0;
  /// True once every reader has been (or will be, without further help) sent the header.
  bool announced = false;
  /// First reader that has not been served yet; transports that send to one reader after the
  /// other keep their place here.
  std::size_t reader_cursor = 0;

  [[nodiscard]] bool complete() const noexcept { return announced && published == header.bytes; }
};

/// Moves framed messages between ordered pairs of ranks, in chunks.
///
/// Messages of one (writer, reader, lane) arrive in the order of their
/// publication. No call blocks. All calls are made under the engine's mutex.
/// A message's bytes may become readable piece by piece; pieces start and end
/// on multiples of 64 bytes except at the message's end.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// "shm", "mpi", "tcp".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Whether messages to different readers are under way at the same time; else each waits for all
  /// that were published before.
  [[nodiscard]] virtual bool has_stream_per_reader() const noexcept { return false; }
  /// True if messages to and from `rank` may go through this transport.
  [[nodiscard]] virtual bool reaches(int rank) const noexcept = 0;

  /// Moves the next chunk of `departure` out, to all of its readers.
  /// One departure is published to its end (or aborted) before the next one of the same lane
  /// begins. @return whether anything moved.
  virtual bool publish(Departure& departure) = 0;

  /// Ends a departure early: readers that were sent its header see the message end with
  /// `aborted()`. Marks it complete. Call until it returns true.
  virtual bool abort(Departure& departure, std::string_view reason) = 0;

  /// Header of the oldest message of `source` on `lane` that is not finished, or null when none
  /// has arrived. Stays valid until `finish`.
  [[nodiscard]] virtual const MessageHeader* arrived(int source, Lane lane) = 0;
  /// Whether all that `source` had sent on the lanes `Ordinary` and `Deep` before the message that
  /// has arrived on `lane`, one of these, has arrived too: lanes may overtake each other.
  [[nodiscard]] virtual bool has_all_before(int /*source*/, Lane /*lane*/) { return true; }

  /// Bytes of that message, from the reading position on, that are here in one piece. Empty when
  /// none are here yet, or the message is at its end.
  [[nodiscard]] virtual std::span<const std::byte> readable(int source, Lane lane) = 0;

  /// Moves the reading position on by `bytes`, at most what `readable` returned. The memory goes
  /// back to the writer.
  virtual void consume(int source, Lane lane, std::size_t bytes) = 0;

  /// True when every byte of that message has been consumed.
  [[nodiscard]] virtual bool at_end(int source, Lane lane) const = 0;

  /// Reason why the writer ended the message before all of its bytes came, once known.
  [[nodiscard]] virtual std::optional<std::string> aborted(int source, Lane lane) = 0;

  /// Takes the message, all of whose bytes were consumed (or that was aborted), off the stream.
  virtual void finish(int source, Lane lane) = 0;

  /// Control messages that wait for a peer to read; what comes beyond them is dropped.
  static constexpr std::size_t kMostWaitingControls = 4096;
  /// Sends a control message, now or from `progress`. Dropped if the peer is gone.
  virtual void send_control(int rank, const ControlMessage& message) = 0;
  /// Next control message with its sender.
  [[nodiscard]] virtual std::optional<std::pair<int, ControlMessage>> poll_control() = 0;

  /// Drives transfers that need the host. @return whether anything moved.
  virtual bool progress() { return false; }

  /// From now on `bell` is rung when something has come, or there is room again, that nobody who
  /// drives has seen; null: none is. @return whether this transport rings it, and so wants `watch`.
  virtual bool ring(Doorbell* /*bell*/) { return false; }

  enum class Watch : std::uint8_t {
    /// Somebody goes to sleep, and is to be woken by the bell.
    ForSleeper,
    /// Nobody waits: only what has to be moved all the same is.
    AtRest,
  };
  /// Whoever drove stops looking; `progress` takes it back.
  virtual void watch(Watch /*watch*/) {}

  /// True while something of this rank is on its way that needs `progress` to get there, although
  /// its departure is complete.
  [[nodiscard]] virtual bool has_pending() { return false; }

  /// False while the message `id` of `source` has not come to its end here and needs `progress` to.
  [[nodiscard]] virtual bool has_come(int /*source*/, Lane /*lane*/, CallId /*id*/) { return true; }

  /// True while events of this transport cannot wake a sleeping waiter, so that it must be polled.
  [[nodiscard]] virtual bool needs_polling() const noexcept { return false; }

  /// Why `rank` will not come any more (it left, or its process ended), or nothing while it lives.
  [[nodiscard]] virtual std::optional<std::string> cause_of_death(int rank) = 0;

  /// Whether the process of `rank` has ended without closing its context; false where that cannot
  /// be known.
  [[nodiscard]] virtual bool has_died(int /*rank*/) { return false; }

  /// Whether `rank` has closed its context by itself: false while it lives, and where its process
  /// has ended without doing so.
  [[nodiscard]] virtual bool has_left(int rank) = 0;

  /// The last call that `rank` is known to have begun; call 0 where none is.
  struct SeenCall {
    std::uint64_t call = 0;
    OpKind kind = OpKind::Barrier;
  };
  [[nodiscard]] virtual SeenCall last_call(int rank) const = 0;

  /// The same as text, for messages about waits that took too long.
  [[nodiscard]] virtual std::string last_seen(int rank) const = 0;

  /// Shows what this rank does now, for peers' `last_seen`.
  virtual void note_call(CallId id, OpKind kind) = 0;

  /// A thread's wait in a call of all ranks, for a message of one of them; call 0: none.
  struct Wait {
    std::uint64_t call = 0;
    int rank = -1;
  };
  /// The calls that a rank itself shows to be in.
  struct Standing {
    /// The last call that it has begun.
    SeenCall begun{};
    /// Its calls of all ranks before this one have ended: what they sent can be read.
    std::uint64_t first_under_way = 0;
    /// The wait of the one thread that makes its calls.
    Wait wait{};
  };
  /// Nothing where ranks do not see what others are in.
  [[nodiscard]] virtual std::optional<Standing> standing_of(int /*rank*/) const {
    return std::nullopt;
  }
  /// Shows that all calls of all ranks before `first_under_way` have ended here.
  virtual void note_end(std::uint64_t /*first_under_way*/) noexcept {}
  /// Shows whom this rank's only thread waits for.
  virtual void note_wait(Wait /*wait*/) noexcept {}
};

}  // namespace bluefog
