#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/bfrun/job/monitor/attendance.hpp"
#include "tools/bfrun/job/monitor/failures.hpp"
#include "tools/bfrun/job/monitor/far_ends.hpp"
#include "tools/bfrun/job/monitor/growth.hpp"
#include "tools/bfrun/job/monitor/monitored_job.hpp"
#include "tools/bfrun/job/monitor/overtime.hpp"
#include "tools/bfrun/job/monitor/respawns.hpp"
#include "tools/bfrun/job/monitor/roster.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/rank_report.hpp"

namespace bluefog::bfrun {

/// Follows the reports of one job, and decides which lines to print and which code to exit with.
class JobMonitor {
 public:
  using Clock = std::chrono::steady_clock;

  explicit JobMonitor(MonitoredJob job)
      : job_(std::move(job)),
        attendance_(job_.ranks, job_.start_patience),
        respawns_(job_.ranks, job_.respawns),
        roster_(job_.ranks),
        far_ends_(job_.host_silence) {}

  /// Takes one report; returns the lines to print now.
  [[nodiscard]] std::vector<std::string> take(const RankReport& report,
                                              Clock::time_point now = Clock::now());

  /// The watcher of `rank` is gone, whatever it has reported.
  void take_watcher_end(int rank, Clock::time_point now = Clock::now());

  /// The host of `rank` cannot be reached any more: its ranks are lost, except those that have
  /// ended. Unless the others go on without them, the job ends. Returns the lines to print now.
  /// @param why in words: "it has answered nothing for 60 s".
  [[nodiscard]] std::vector<std::string> take_loss(int rank, const std::string& why,
                                                   Clock::time_point now = Clock::now());

  /// The watcher of `rank` on another host is gone; its report may still be on its way, for as long
  /// as that host may be silent.
  void take_far_end(int rank, Clock::time_point now = Clock::now());

  /// Whether `rank`, whose process is gone and has failed, is started again: `Respawns` decides, but
  /// after a signal that ends the job nobody is. The failure of a rank that is started again is none
  /// of the job's. The lines are to be printed now.
  [[nodiscard]] Respawns::Decision decide_restart(int rank, Clock::time_point now = Clock::now());
  /// The work that is due at `now` for ranks that come and go, each piece once.
  [[nodiscard]] RanksDue take_due(Clock::time_point now);
  /// How ranks come and go; null: they do not.
  [[nodiscard]] Growth* growth() { return job_.growth ? &*job_.growth : nullptr; }
  /// `Respawns::is_absent`: the rank has failed.
  [[nodiscard]] bool is_absent(int rank) const { return respawns_.is_absent(rank); }
  /// The process of `rank` is gone. Whether it was told to leave, and is no rank of the job any more;
  /// `lines` receives what is said of it.
  [[nodiscard]] bool take_left(int rank, std::vector<std::string>& lines,
                               Clock::time_point now = Clock::now());
  /// How `rank` has ended, in words.
  [[nodiscard]] std::string end_of(int rank) const { return roster_.describe_end_of(rank); }

  /// A signal was passed on to the job.
  void take_signal(int number, Clock::time_point now = Clock::now());

  /// The lines that are due at `now`: the ranks that failed by themselves, by the time at which
  /// they began to. Reports overtake each other, so a rank is named only `kHold` after its first
  /// report, and later where another one had begun to leave before it, which it may have died of.
  /// Ranks that ended because mpirun told them to are not named; after 16 names the rest is only
  /// counted.
  [[nodiscard]] std::vector<std::string> due_lines(Clock::time_point now);

  /// The time from `now` until there is something to do; negative: nothing.
  [[nodiscard]] std::chrono::milliseconds time_left(Clock::time_point now) const;

  /// Whether a rank has failed by itself that another one had begun to leave before, whose end has
  /// not been heard of: what it says is what ended the job.
  [[nodiscard]] bool awaits_earlier_end() const { return failures_.awaits_earlier_end(); }

  /// Whether mpirun has had its time and is to be killed: `kGrace` after a signal that ends the
  /// job, after the loss of a host that ends it, or after the end of the last rank, `kFailureGrace`
  /// after a failure that ends the job.
  /// mpirun may hang for ever, before it has started all ranks, when a host does not answer, or
  /// when it ends.
  [[nodiscard]] bool wants_kill(Clock::time_point now);

  /// The last lines to print, once mpirun has ended so.
  [[nodiscard]] std::vector<std::string> closing_lines(const ExitStatus& mpirun);

  /// The exit code of the job, given how mpirun ended: the code of the rank that failed first,
  /// unless somebody else killed mpirun (a crash of its own does not count); 128 + signal when
  /// bfrun was told to end; 2 when mpirun refused the extra flags; else mpirun's own. A rank that
  /// mpirun has ended, or that ended without a word, makes another code of 0.
  [[nodiscard]] int exit_code(const ExitStatus& mpirun) const;

  static constexpr std::chrono::milliseconds kHold = Failures::kHold;
  static constexpr std::chrono::milliseconds kLeavingHold = Failures::kLeavingHold;
  static constexpr std::chrono::milliseconds kGrace{3000};
  static constexpr std::chrono::milliseconds kFailureGrace{5000};

 private:
  static constexpr int kMostNames = 16;

  [[nodiscard]] bool has_too_few() const;
  [[nodiscard]] bool ends_job(const RankReport& report) const;
  /// The ranks that have ended well where as many suffice, and some have not; else 0.
  [[nodiscard]] std::int64_t enough_that_ended_well() const;
  void look_whether_all_are_gone(Clock::time_point now);
  [[nodiscard]] std::optional<Overtime::Due> deadline() const;
  [[nodiscard]] std::vector<std::string> lost_lines(const ExitStatus& mpirun) const;
  [[nodiscard]] std::vector<std::string> name_failures();
  [[nodiscard]] bool have_all_left() const {
    const bool have_left = failures_.all().empty() && respawns_.have_only_left();
    return ending_signal_ == 0 && (job_.growth ? roster_.size() == 0 : have_left);
  }
  [[nodiscard]] bool never_started(const ExitStatus& mpirun) const;
  [[nodiscard]] bool refused_flags(const ExitStatus& mpirun) const;
  void take_restarts(RanksDue& due, Clock::time_point now);
  void tell_to_leave(RanksDue& due, Clock::time_point now);
  void remove(int rank, Clock::time_point now);

  MonitoredJob job_;
  Attendance attendance_;
  Failures failures_;
  Respawns respawns_;
  Roster roster_;
  int ending_signal_ = 0;  ///< the first that asked the whole job to end
  Clock::time_point ending_since_;
  bool failed_before_signal_ = false;
  bool was_cut_short_ = false;                     ///< ranks were there when it came
  std::optional<Clock::time_point> failed_since_;  ///< a rank is gone whose failure ends the job
  std::optional<Clock::time_point> gone_since_;    ///< all ranks that can be there are gone
  std::set<int> lost_;                             ///< ranks of hosts that cannot be reached
  std::string lost_host_;                          ///< whose loss ends the job
  Clock::time_point lost_since_;
  FarEnds far_ends_;
  std::string overdue_;  ///< why mpirun was killed; empty when it was not
};

}  // namespace bluefog::bfrun
