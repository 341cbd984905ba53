#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "pipeline/step_times.hpp"

namespace bluefog::examples {

/// One step of one rank, or the sum of several of the same place.
struct StepRecord {
  std::int64_t replica = 0;  ///< the pipeline of the rank
  std::int64_t stage = 0;
  std::int64_t rows = 0;         ///< of all pipelines
  std::int64_t cached_rows = 0;  ///< of this rank, from the cache
  pipeline::StepTimes times{};
  pipeline::StepTraffic traffic{};

  /// Adds the other one's figures; the place is the last one.
  void add(const StepRecord& other);
};

/// A record as it travels; counts are exact below 2^53.
using PackedRecord = std::array<double, 16>;

[[nodiscard]] PackedRecord packed(const StepRecord& record);
[[nodiscard]] StepRecord unpacked(const PackedRecord& values);

/// The shares of a rank's time, loading included, and what it moves in a second:
/// `loading 1 %, forward 33 %, backward 40 %, bubble 20 %, all-reduce 3 % (4 % whole), optimizer
/// 2 %; 3.20 MB/s to stages, 1.10 MB/s in all-reduces of 49610 parameters, 12.0 syncs/s between
/// machines`.
/// @param steps of which the record is the sum.
[[nodiscard]] std::string breakdown_text(const StepRecord& sum, std::int64_t steps);

/// The record as a metrics file has it, seconds by their uses.
[[nodiscard]] nlohmann::json json_of(const StepRecord& record, int rank);

}  // namespace bluefog::examples
