#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
/// way are kept longest. Shared by the contexts of a rank. Thread-safe. Cost per call: two looks
/// at the clock and a copy of its envelope, under a lock.
class FlightRecorder {
 public:
  /// Names a call that was begun.
  using Ticket = std::uint64_t;

  /// @throws InvalidArgument if the file cannot be written, with its name and the reason.
  FlightRecorder(std::string prefix, int rank, int size, Logger log);

  /// A number for another context: 0 for the first one.
  [[nodiscard]] int add_context();

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
  /// Notes as text what a window's call waits for, or holds, and the ranks that it waits for.
  void note_window_wait(Ticket ticket, std::string what, std::vector<int> ranks);

  /// Writes the record. Failures to write are logged.
  void write(std::string_view reason) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Ticket ticket = 0;
    int context = 0;
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
  int contexts_ = 0;
};

}  // namespace bluefog
