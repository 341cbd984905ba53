#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "tools/bfrun/job/monitor/growth.hpp"
#include "tools/bfrun/rank/binding.hpp"

namespace bluefog::bfrun {

/// The facts about a job that its monitor needs before the start.
struct MonitoredJob {
  int ranks = 1;
  bool fault_tolerant = false;
  /// So many ranks that end well make a job that has succeeded; 0: all.
  int enough = 0;
  int respawns = 0;  ///< so many restarts of ranks that have failed
  /// Ranks are on several hosts: say what they got, once all have started, and which ones do not
  /// come to `init`, after `start_patience` or when those that wait fail.
  bool has_other_hosts = false;
  std::chrono::milliseconds start_patience{0};  ///< 0: for ever
  PlacementNotes notes = {};
  std::string extra_mpi_flags = {};  ///< as the user wrote them
  /// Who starts and ends the ranks, in words.
  std::string starter = "mpirun";
  /// How long a host may answer nothing; 0: for ever.
  std::chrono::seconds host_silence{0};
  bool goes_on_after_failure = false;  ///< these flags ask mpirun not to end a job that has failed
  std::optional<Growth> growth = {};   ///< nothing: ranks are never more than these
};

}  // namespace bluefog::bfrun
