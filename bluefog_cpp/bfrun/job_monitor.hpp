#pragma once

#include <map>
#include <string>
#include <vector>

#include "bluefog_cpp/bfrun/binding.hpp"
#include "bluefog_cpp/bfrun/process.hpp"
#include "bluefog_cpp/bfrun/rank_report.hpp"

namespace bluefog::launcher {

/// What a monitor is told before its job starts.
struct MonitoredJob {
  int ranks = 1;
  bool fault_tolerant = false;
  bool announce_placement = false;  ///< say what the ranks got, once all have started
  PlacementNotes notes = {};
};

/// Follows the reports of one job: which lines to print, and what the job's exit code is.
class JobMonitor {
 public:
  explicit JobMonitor(MonitoredJob job) : job_(std::move(job)) {}

  /// Takes one report; returns the lines to print now.
  ///
  /// A rank that failed by itself is named; one that ended because mpirun told it to is not. After
  /// 16 names the rest is only counted.
  [[nodiscard]] std::vector<std::string> take(const RankReport& report);

  /// A signal was passed on to the job.
  void take_signal(int number);

  /// mpirun has ended: the last lines to print.
  [[nodiscard]] std::vector<std::string> closing_lines() const;

  /// The code of the job, given how mpirun ended.
  ///
  /// mpirun's own code unless that is 0; then, with fault tolerance, that of the first rank that
  /// failed, or 1 when a rank ended without a word. 128 + signal when bfrun was told to end.
  [[nodiscard]] int exit_code(const ExitStatus& mpirun) const;

 private:
  [[nodiscard]] std::vector<std::string> placement_lines() const;
  [[nodiscard]] std::vector<RankReport> silent_ranks() const;

  MonitoredJob job_;
  std::map<int, RankReport> started_;
  std::map<int, RankReport> ended_;
  std::vector<RankReport> failed_;  ///< in the order in which they were heard of
  int ending_signal_ = 0;           ///< the first that asked the whole job to end
  bool failed_before_signal_ = false;
};

}  // namespace bluefog::launcher
