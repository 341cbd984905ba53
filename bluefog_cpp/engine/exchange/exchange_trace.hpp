#pragma once

#include <cstdint>
#include <string_view>

#include "bluefog_cpp/base/trace/trace.hpp"

namespace bluefog {

/// Spans of a call's row in the timeline: what its exchanges do, and what they wait for.
class ExchangeTrace {
 public:
  using Clock = Timeline::Clock;

  /// Why an exchange stands still.
  struct Pause {
    enum class Reason : std::uint8_t { None, Source, Reader, EarlierCall, NobodyWaits };
    Reason reason = Reason::None;
    /// The source or reader that it waits for.
    int rank = -1;

    friend bool operator==(const Pause&, const Pause&) = default;
  };

  /// @param row where spans go; null: none are written.
  void set_row(TraceRow* row) noexcept { row_ = row; }
  [[nodiscard]] bool is_written() const noexcept { return row_ != nullptr; }

  /// A span from `from` until now, before which a pause ends.
  void add(std::string_view name, Clock::time_point from);
  /// The exchange stands still: opens a span, so that the trace of a process that dies shows whom
  /// it waited for. Nothing if that span is open.
  void pause(Pause pause);
  void end_pause(Clock::time_point when);

 private:
  TraceRow* row_ = nullptr;
  /// The pause whose span is open in the row.
  Pause pause_{};
};

}  // namespace bluefog
