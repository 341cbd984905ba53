#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/bfrun/job/monitor/job_monitor.hpp"
#include "tools/bfrun/job/signal_watch.hpp"

// The end of a job: the last lines to print, and the exit code.
namespace bluefog::bfrun {
namespace {

/// The code with which prterun ends when it has itself printed what it does not like.
constexpr int kRefusedByMpirun = 213;
constexpr int kUsageCode = 2;

}  // namespace

std::vector<std::string> JobMonitor::closing_lines(const ExitStatus& mpirun) {
  RanksDue restarts;
  if (ending_signal_ == 0) {
    take_restarts(restarts, Clock::now());  // nobody is left who could be joined
  }
  std::vector<std::string> lines = name_failures();
  lines.insert(lines.end(), restarts.lines.begin(), restarts.lines.end());
  if (failures_.left_out() > 0) {
    lines.push_back(fmt::format("{} more ranks failed", failures_.left_out()));
  }
  if (never_started(mpirun)) {
    lines.push_back(fmt::format(
        "{} ended with code {} before any rank was heard of{}", job_.starter, mpirun.shell_code(),
        job_.extra_mpi_flags.empty()
            ? std::string()
            : fmt::format("; expected flags that it knows, found --extra-mpi-flags '{}'",
                          job_.extra_mpi_flags)));
  }
  if (!overdue_.empty()) {
    lines.push_back(fmt::format("{} was still there {}, and was killed", job_.starter, overdue_));
  } else if (mpirun.killed_by != 0 && ending_signal_ == 0) {
    lines.push_back(
        fmt::format("{} was killed by signal {}", job_.starter, name_of_signal(mpirun.killed_by)));
  }
  std::ranges::move(lost_lines(mpirun), std::back_inserter(lines));
  if (have_all_left()) {
    lines.push_back(Respawns::all_have_left(job_.growth.has_value()));
  }
  if (const auto ended_well = enough_that_ended_well(); ended_well > 0) {
    lines.push_back(fmt::format("{} of {} ranks have ended well, {} suffice (--min-np)", ended_well,
                                roster_.size(), job_.enough));
  }
  return lines;
}

std::vector<std::string> JobMonitor::lost_lines(const ExitStatus& mpirun) const {
  const bool is_known = mpirun.killed_by != 0 && overdue_.empty();
  const std::vector<RankReport>& failed = failures_.all();
  const bool is_due = job_.fault_tolerant || failed.empty() || !overdue_.empty();
  if (ending_signal_ != 0 || is_known || !is_due) {
    return {};
  }
  std::vector<std::string> lines;
  // A rank that exits with a code ends the job under fault tolerance too.
  const bool has_exited =
      std::ranges::any_of(failed, [](const RankReport& report) { return report.killed_by == 0; });
  for (const auto& rank : roster_.silent()) {
    const std::string reason =
        has_exited && overdue_.empty()
            ? fmt::format("{} ended it, because another rank exited with an error", job_.starter)
        : rank.came_by_line
            ? fmt::format("its watching bfrun was killed, or {} ended before it", job_.starter)
            : "the connection to its host was lost, or mpirun's daemon or its watching bfrun there "
              "was killed";
    lines.push_back(describe_silent_end(rank, reason));
  }
  for (const int rank : roster_.unheard()) {
    lines.push_back(fmt::format("rank {} was never heard of", rank));
  }
  const bool has_failed = !failed.empty() || !lines.empty() || mpirun.shell_code() != 0;
  for (const auto& [rank, report] : roster_.ended()) {
    if (!has_failed && report.failed()) {
      lines.push_back(describe_end(report) + ", told to end");
    }
  }
  if (std::ssize(lines) > kMostNames) {
    const auto more = std::ssize(lines) - kMostNames;
    lines.resize(kMostNames);
    lines.push_back(fmt::format("{} more ranks were lost", more));
  }
  return lines;
}

int JobMonitor::exit_code(const ExitStatus& mpirun) const {
  const bool is_overdue = !overdue_.empty();
  const bool is_lossless = roster_.silent().empty() && roster_.unheard().empty();
  const std::vector<RankReport>& failures = failures_.all();
  const bool is_settled = !failures.empty() || std::ssize(roster_.ended()) == roster_.size();
  // The ranks' end counts, and not what has become of mpirun after it.
  const bool by_ranks = is_overdue || (is_crash(mpirun.killed_by) && is_settled);
  const int code = by_ranks ? 0 : mpirun.shell_code();
  if (ending_signal_ != 0 && !failed_before_signal_ &&
      (code != 0 || is_overdue || !is_lossless || was_cut_short_)) {
    return 128 + ending_signal_;
  }
  if (refused_flags(mpirun)) {
    return kUsageCode;
  }
  if (const bool have_left = have_all_left(); have_left || enough_that_ended_well() > 0) {
    return have_left ? 1 : 0;
  }
  if ((by_ranks || mpirun.killed_by == 0) && !failures.empty()) {
    return failures.front().shell_code();
  }
  if (code != 0 || !is_lossless) {
    return code != 0 ? code : 1;
  }
  const auto failed =
      std::ranges::find_if(roster_.ended(), [](const auto& end) { return end.second.failed(); });
  return failed == roster_.ended().end() ? 0 : failed->second.shell_code();
}

std::int64_t JobMonitor::enough_that_ended_well() const {
  const std::int64_t ended_well = roster_.ended_well();
  const bool do_suffice =
      job_.enough > 0 && ended_well >= job_.enough && ended_well < roster_.size();
  return do_suffice && ending_signal_ == 0 && !respawns_.have_only_left() ? ended_well : 0;
}

bool JobMonitor::never_started(const ExitStatus& mpirun) const {
  return mpirun.code != 0 && roster_.started().empty() && ending_signal_ == 0;
}

bool JobMonitor::refused_flags(const ExitStatus& mpirun) const {
  return never_started(mpirun) && mpirun.code == kRefusedByMpirun && !job_.extra_mpi_flags.empty();
}

}  // namespace bluefog::bfrun
