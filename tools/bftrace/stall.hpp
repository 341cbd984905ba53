#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bluefog::tracing {

/// One call of a rank's flight record.
struct RecordedCall {
  std::uint64_t call = 0;
  /// Of which of the rank's contexts: 0 for the first one.
  int context = 0;
  /// The other rank of a call that two ranks make, or -1.
  int partner = -1;
  /// "neighbor_allreduce(float32[100], name 'w')".
  std::string text{};
  std::string state{};
  double begun_s_ago = 0.0;
  /// Absent while it runs.
  std::optional<double> ended_s_ago{};
  std::vector<int> no_message_from{};
  std::vector<int> not_taken_by{};
  /// A call of a window, which is in no order with the others.
  bool is_window_call = false;
  /// What that call waits for, "the mutex of rank 2", or holds.
  std::string what{};
  /// The ranks that it waits for.
  std::vector<int> waits_for{};
};

/// What one rank wrote when a call of it stalled or failed.
struct FlightRecord {
  int rank = 0;
  int size = 1;
  std::string reason{};
  /// Seconds since the epoch, by the clock of the rank's host; absent in records of old.
  std::optional<double> written_at{};
  /// In the order in which they were started.
  std::vector<RecordedCall> calls{};
};

/// @throws InvalidArgument if `text`, the contents of `path`, is no flight record.
[[nodiscard]] FlightRecord parse_record(const std::string& path, const std::string& text);

/// Who waits for whom, rank by rank, and which ranks hold up the others: those that are waited for
/// and wait for nobody, that left no record, or that wait for each other in a circle. Calls of
/// windows that wait for them are named.
///
/// A call that begins after the record of a rank which waits for the caller holds up nobody by what
/// it waits for: its rank came too late, having been in another call, stopped or computing, and whom
/// it waits for had given up. Hosts' clocks are compared for that.
/// @throws InvalidArgument for no records, two of one rank, or ranks of runs of different sizes.
[[nodiscard]] std::string explain_stall(std::vector<FlightRecord> records);

}  // namespace bluefog::tracing
