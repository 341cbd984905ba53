#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bluefog::bftrace {

/// One call of a rank's flight record.
struct RecordedCall {
  std::uint64_t call = 0;
  /// The number of the context among the rank's, 0 for the first one.
  int context = 0;
  /// The epoch of the group that made it: how often ranks had gone on without others or with new ones.
  std::uint64_t epoch = 0;
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
  /// The thing that the call waits for, "the mutex of rank 2", or holds.
  std::string what{};
  /// The ranks that the call waits for.
  std::vector<int> waits_for{};
};

/// The record that a rank wrote when a call of it stalled or failed.
struct FlightRecord {
  int rank = 0;
  int size = 1;
  /// The rank's group when it wrote the record: its epoch, and its ranks by their numbers in the launch;
  /// none in old records.
  std::uint64_t epoch = 0;
  std::vector<int> ranks{};
  std::string reason{};
  /// Seconds since 1970, by the clock of the rank's host; absent in old records.
  std::optional<double> written_at{};
  /// The calls in the order in which they started.
  std::vector<RecordedCall> calls{};
};

/// @throws InvalidArgument if `text`, the contents of `path`, is no flight record.
[[nodiscard]] FlightRecord parse_record(const std::string& path, const std::string& text);

}  // namespace bluefog::bftrace
