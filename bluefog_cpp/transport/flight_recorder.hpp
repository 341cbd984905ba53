#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/base/log.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

/// Keeps the last calls of a rank, and writes them to a file when one of them stalls or fails, for
/// `bftrace stall`, which reads those of all ranks.
///
/// The file is `<prefix><rank>.json`; each record replaces the one before. Used under the engine's
/// mutex. Cost per call: two looks at the clock and a copy of its envelope.
class FlightRecorder {
 public:
  FlightRecorder(std::string prefix, int rank, int size, Logger log);

  /// @param partner as `Operation::partner`.
  void begin(std::uint64_t call, int partner, const Envelope& envelope);
  enum class State : std::uint8_t { Running, Complete, Failed };
  void end(std::uint64_t call, int partner, State state);

  /// Whom a running call waits for.
  struct Wait {
    std::uint64_t call = 0;
    int partner = -1;
    std::vector<int> sources{};
    std::vector<int> readers{};
  };
  /// Writes the record. Failures to write are logged.
  void write(std::string_view reason, const std::vector<Wait>& waits) noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::uint64_t call = 0;
    int partner = -1;
    OpKind kind = OpKind::Barrier;
    Dtype dtype = Dtype::UInt8;
    std::int64_t count = 0;
    CallName name{{}};
    State state = State::Running;
    Clock::time_point begun{};
    Clock::time_point ended{};
  };

  [[nodiscard]] std::string text_of(std::string_view reason, const std::vector<Wait>& waits) const;

  std::string path_;
  int rank_;
  int size_;
  Logger log_;
  std::array<Entry, 64> last_{};
  std::size_t count_ = 0;
};

}  // namespace bluefog
