#pragma once

#include <cstdint>
#include <string>

#include "tools/bfrun/job/monitor/job_monitor.hpp"

namespace bluefog::bfrun {

/// The word of a rank that has started.
inline RankReport started(int rank, const std::string& host = "a") {
  RankReport report;
  report.rank = rank;
  report.pid = 100 + rank;
  report.host = host;
  report.placement = {2, 1, 1};
  return report;
}

/// The word of a rank on host a that has ended.
inline RankReport ended(int rank, int exit_code, int killed_by = 0, std::int64_t at_us = 0) {
  RankReport report = started(rank);
  report.kind = RankReport::Kind::Ended;
  report.exit_code = exit_code;
  report.killed_by = killed_by;
  report.ended_at_us = at_us;
  return report;
}

}  // namespace bluefog::bfrun
