#pragma once

#include <boost/container/small_vector.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/base/trace.hpp"
#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/transport/transport.hpp"
#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

/// The transport that leads to each rank (null for the rank itself).
using Routes = std::vector<Transport*>;

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
  /// Where the memory is, of outgoing and incoming messages both. On a device `receive` is called
  /// with whole messages, and what it does there is ordered by the channel's stream.
  DeviceKind device = DeviceKind::Cpu;
  /// Where not null: outgoing payloads are not there yet. With `Pace::Together`, on ordinary lanes and
  /// those of pairs, for a single one, at whose offsets pieces are combined.
  Supply* supply = nullptr;
  /// Its number in the call is no lower. For exchanges before which ranks have made different numbers
  /// of them.
  std::uint32_t least_step = 0;
  /// No further exchange follows in the same call.
  bool last = true;
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

/// What other ranks said about calls: kept by the engine, read by exchanges.
class PeerWord {
 public:
  virtual ~PeerWord() = default;
  /// Why `rank` refused its call number `call` or ended it with an error, or null.
  [[nodiscard]] virtual const std::string* refusal(int rank, std::uint64_t call) const = 0;
  /// Whether `giving_up` may have something to tell.
  [[nodiscard]] virtual bool knows_of_giving_up() const noexcept = 0;
  /// Why `rank` has left its call number `call` without waiting for its end, or null.
  [[nodiscard]] virtual const std::string* giving_up(int rank, std::uint64_t call) const = 0;
  /// Whether `call`, which `rank` makes too, has begun here and has not ended: it takes its messages
  /// itself.
  [[nodiscard]] virtual bool is_under_way(int rank, std::uint64_t call) const = 0;
  /// `rank` sent a message in `call`, described by `text`, that no exchange here took.
  virtual void unexpected(int rank, std::uint64_t call, const std::string& text) = 0;
};

/// What an exchange may do in a step, given the other exchanges in flight.
struct StepRights {
  /// All earlier calls have sent everything.
  bool may_publish = true;
  /// Somebody waits for this exchange, or nobody ever will.
  bool waited_for = false;
  /// The earliest call of all ranks that has not ended here.
  std::uint64_t first_under_way = 0;
};

/// Takes what is here of `source`'s oldest message on `lane`, which no exchange takes.
/// @return whether it has come to its end, and is off the stream.
bool drop_message(Transport& transport, int source, Lane lane, PeerWord& word);

/// A message that its writer began and will not end.
struct Retraction {
  Transport* transport = nullptr;
  Departure departure{};
  /// What `departure.readers` refers to.
  std::vector<WeightedRank> readers{};
};

/// State machine of one exchange: publishes when there is room, combines when all pieces are here,
/// never blocks. Whoever holds the engine's mutex steps it.
class Exchange {
 public:
  /// The spec of the next exchange, cleared, to be filled in place before `start`: a copy would wait
  /// for what was just written. The exchange before has ended.
  [[nodiscard]] ExchangeSpec& new_spec() noexcept { return spec_ = {}; }

  /// @param rank this rank, for messages.
  /// @param row where spans go; null: none are written.
  void start(int rank, CallId id, const Routes& routes, Receiver& receiver,
             TraceRow* row = nullptr);

  /// @return whether anything moved.
  /// @throws MismatchError, PeerFailure: the exchange then has to be retracted.
  bool step(const StepRights& rights, PeerWord& word);

  [[nodiscard]] bool published() const noexcept { return published_; }
  [[nodiscard]] bool finished() const noexcept { return published_ && consumed_; }

  /// Ends the exchange early. @return what its readers were told of but have not got in full: they
  /// must be told that the rest does not come.
  [[nodiscard]] std::vector<Retraction> retract();

  [[nodiscard]] bool expects_messages() const noexcept { return !sources_.empty(); }
  /// Whether what it expects is here, or comes without this rank's help.
  [[nodiscard]] bool has_come() const;

  /// Ranks whose message is still missing, in whole or in part.
  [[nodiscard]] std::vector<int> awaited_sources() const;
  /// Ranks that have not taken what this rank sends, while there is no room for more.
  [[nodiscard]] std::vector<int> awaited_readers() const;

 private:
  struct Source {
    Transport* transport = nullptr;
    int rank = 0;
    double weight = 1.0;
    std::size_t bytes = 0;
    std::size_t used = 0;
    bool accepted = false;
    /// Looks that found nothing on this lane.
    std::uint32_t vain_looks = 0;
    /// The later message of the source that was last seen in place of the expected one, and when
    /// it was first seen.
    CallId overtaken_by{};
    std::chrono::steady_clock::time_point overtaken_since{};
    bool finished = false;
  };

  struct Sending {
    Departure departure{};
    Transport* transport = nullptr;
  };

  /// Why an exchange stands still.
  struct Pause {
    enum class Reason : std::uint8_t { None, Source, Reader, EarlierCall, NobodyWaits };
    Reason reason = Reason::None;
    int rank = -1;

    friend bool operator==(const Pause&, const Pause&) = default;
  };

  [[nodiscard]] bool may_publish(const StepRights& rights) const noexcept {
    return !published_ && rights.may_publish;
  }
  [[nodiscard]] bool may_consume(const StepRights& rights) const noexcept {
    return !consumed_ &&
           (spec_.consumption == Consumption::AsItArrives || rights.waited_for);
  }
  bool consume(PeerWord& word) {
    if (word.knows_of_giving_up()) [[unlikely]] {
      throw_if_given_up(word);
    }
    return spec_.pace == Pace::Together ? consume_together(word) : consume_each(word);
  }
  bool step_traced(const StepRights& rights, PeerWord& word);
  void trace(std::string_view name, Timeline::Clock::time_point from);
  void trace_pause(const StepRights& rights);
  void end_pause(Timeline::Clock::time_point when);
  [[nodiscard]] Pause pause_now(const StepRights& rights) const;
  [[nodiscard]] bool is_awaited(const Source& source) const;

  void add_sendings(const Outgoing& outgoing, const Routes& routes);
  bool publish(const StepRights& rights);
  [[nodiscard]] std::size_t copied_out() const noexcept;
  /// A message of `source` that it can only have sent after this exchange's, or null: `header`,
  /// the next one of this lane, if there is one, else what has come on another lane.
  [[nodiscard]] const MessageHeader* find_later(Source& source, const MessageHeader* header);
  [[nodiscard]] static bool is_left_out(Source& source, CallId later);
  bool accept(Source& source, PeerWord& word);
  /// The message is of this call and does not fit it. @throws MismatchError.
  [[noreturn]] void refuse(const Source& source, const MessageHeader& header) const;
  bool consume_together(PeerWord& word);
  bool consume_each(PeerWord& word);
  void finish(Source& source);
  void throw_if_aborted(const Source& source, const PeerWord& word) const;
  /// @throws PeerFailure if that rank has told that it ended this call with an error.
  void throw_if_refused(const Source& source, const PeerWord& word) const;
  void throw_if_given_up(const PeerWord& word) const;
  [[nodiscard]] std::string call_text() const;

  ExchangeSpec spec_{};
  CallId id_{};
  int rank_ = 0;
  Receiver* receiver_ = nullptr;
  boost::container::small_vector<Sending, kInlineNeighbors> sendings_;
  boost::container::small_vector<Source, kInlineNeighbors> sources_;
  boost::container::small_vector<Piece, kInlineNeighbors> pieces_;
  std::vector<std::vector<WeightedRank>> split_readers_;
  std::size_t missing_headers_ = 0;
  std::size_t unfinished_sources_ = 0;
  /// Bytes of arrived messages that were used; with `Pace::Together` those of each source.
  std::size_t used_ = 0;
  bool published_ = false;
  bool consumed_ = false;
  TraceRow* row_ = nullptr;
  /// Whose span is open in the row.
  Pause pause_{};
};

}  // namespace bluefog
