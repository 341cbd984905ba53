#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/rank/binding.hpp"

namespace bluefog::bfrun {

/// The facts about a job that its monitor needs before the start.
struct MonitoredJob {
  int ranks = 1;
  bool fault_tolerant = false;
  bool announce_placement = false;  ///< say what the ranks got, once all have started
  PlacementNotes notes = {};
  std::string extra_mpi_flags = {};  ///< as the user wrote them
};

/// Follows the reports of one job, and decides which lines to print and which code to exit with.
class JobMonitor {
 public:
  using Clock = std::chrono::steady_clock;

  explicit JobMonitor(MonitoredJob job) : job_(std::move(job)) {}

  /// Takes one report; returns the lines to print now.
  [[nodiscard]] std::vector<std::string> take(const RankReport& report,
                                              Clock::time_point now = Clock::now());

  /// A signal was passed on to the job.
  void take_signal(int number, Clock::time_point now = Clock::now());

  /// The lines that are due at `now`: the ranks that failed by themselves, by the time at which
  /// they ended. Reports overtake each other, so a rank is named only `kHold` after its first
  /// report. Ranks that ended because mpirun told them to are not named; after 16 names the rest is
  /// only counted.
  [[nodiscard]] std::vector<std::string> due_lines(Clock::time_point now);

  /// The time from `now` until there is something to do; negative: nothing.
  [[nodiscard]] std::chrono::milliseconds time_left(Clock::time_point now) const;

  /// Whether a signal that ends the job has waited `kStartGrace` while mpirun still had ranks to
  /// start: mpirun listens to nothing before all are started.
  [[nodiscard]] bool wants_kill(Clock::time_point now) const;

  /// The last lines to print, once mpirun has ended so.
  [[nodiscard]] std::vector<std::string> closing_lines(const ExitStatus& mpirun);

  /// The exit code of the job, given how mpirun ended: the code of the rank that failed first,
  /// unless a signal killed mpirun; 1 when a rank of a fault-tolerant job ended without a word; 128
  /// + signal when bfrun was told to end; 2 when mpirun refused the extra flags; else mpirun's own.
  [[nodiscard]] int exit_code(const ExitStatus& mpirun) const;

  static constexpr std::chrono::milliseconds kHold{250};
  static constexpr std::chrono::milliseconds kStartGrace{5000};

 private:
  [[nodiscard]] std::vector<std::string> placement_lines() const;
  [[nodiscard]] std::vector<RankReport> silent_ranks() const;
  [[nodiscard]] std::vector<std::string> name_failures();
  [[nodiscard]] bool never_started(const ExitStatus& mpirun) const;
  [[nodiscard]] bool refused_flags(const ExitStatus& mpirun) const;

  MonitoredJob job_;
  std::map<int, RankReport> started_;
  std::map<int, RankReport> ended_;
  std::vector<RankReport> failed_;   ///< by the time at which they ended
  std::vector<RankReport> unnamed_;  ///< of these, the ones not named yet
  Clock::time_point unnamed_since_;
  int named_ = 0;
  int ending_signal_ = 0;  ///< the first that asked the whole job to end
  Clock::time_point ending_since_;
  bool failed_before_signal_ = false;
};

}  // namespace bluefog::bfrun
