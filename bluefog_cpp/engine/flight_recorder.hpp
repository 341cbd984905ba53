#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/engine/exchange_spec.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

/// Keeps the last calls of a rank, and writes them to a file when one of them stalls or fails, for
/// `bftrace stall`, which reads those of all ranks.
///
/// The file is `<prefix><rank>.json`; each record replaces the one before. Calls that are under
/// way are kept longest. Shared by the contexts of a rank, those of groups that were formed anew
/// too: ranks go by their numbers in the launch. Thread-safe. Cost per call: two looks at the clock
/// and a copy of its envelope, under a lock.
class FlightRecorder {
 public:
  /// Names a call that was begun.
  using Ticket = std::uint64_t;

  /// @param rank, size in the launch. @throws InvalidArgument if the file cannot be written, with its
  ///   name and the reason.
  FlightRecorder(std::string prefix, int rank, int size, Logger log);

  /// A number for another context: 0 for the first one. @param epoch of its group. @param ranks the
  /// numbers of its ranks in the launch.
  [[nodiscard]] int add_context(std::uint64_t epoch, std::vector<int> ranks);
  /// The number of the next one.
  [[nodiscard]] int next_context();
  /// Contexts that others have had before this rank was there count too.
  void begin_with_context(int number);

  /// @param partner as `Operation::partner`.
  [[nodiscard]] Ticket begin(int context, std::uint64_t call, int partner,
                             const Envelope& envelope);
  /// @param call "win_put", …: a text that stays.
  [[nodiscard]] Ticket begin_window_call(std::string_view call, const Envelope& window);

  enum class State : std::uint8_t {
    Running,
    /// Mutexes of a window that were taken.
    Held,
    Complete,
    Failed,
  };
  void set_state(Ticket ticket, State state);

  /// Whom a call waits for: ranks whose message is missing, and ranks that have not taken this
  /// one's.
  void note_wait(Ticket ticket, const AwaitedRanks& sources, const AwaitedRanks& readers);
  /// Notes as text what a window's call waits for, or holds, and the ranks that it waits for, by
  /// their numbers in the launch.
  void note_window_wait(Ticket ticket, std::string what, std::vector<int> ranks);

  /// Writes the record. Failures to write are logged.
  void write(std::string_view reason) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Group {
    std::uint64_t epoch = 0;
    std::vector<int> ranks{};
  };
  struct Entry {
    Ticket ticket = 0;
    int context = 0;
    std::uint64_t epoch = 0;
    std::uint64_t call = 0;
    int partner = -1;
    /// Empty for calls of the engine.
    std::string_view window_call{};
    OpKind kind = OpKind::Barrier;
    Dtype dtype = Dtype::UInt8;
    std::int64_t count = 0;
    CallName name{{}};
    State state = State::Complete;
    Clock::time_point begun{};
    Clock::time_point ended{};
    std::vector<int> sources{};
    std::vector<int> readers{};
    std::string what{};
  };

  /// The number in the launch of a rank of that context.
  [[nodiscard]] int in_launch(int context, int rank) const {
    return contexts_.at(context).ranks[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::vector<int> in_launch(int context, const AwaitedRanks& awaited) const;

  [[nodiscard]] Entry& place_for_next();
  [[nodiscard]] Entry* find(Ticket ticket);
  [[nodiscard]] static std::string_view kind_text(const Entry& entry);
  [[nodiscard]] std::string text_of(std::string_view reason) const;

  std::string path_;
  int rank_;
  int size_;
  Logger log_;

  std::mutex mutex_;
  std::array<Entry, 64> last_{};
  std::uint64_t count_ = 0;
  int next_context_ = 0;
  std::map<int, Group> contexts_;
  /// The group of the context that was made last.
  Group last_group_;
};

}  // namespace bluefog
