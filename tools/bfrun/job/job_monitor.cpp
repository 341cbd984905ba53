#include "tools/bfrun/job/job_monitor.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

namespace bluefog::bfrun {
namespace {

constexpr int kMostNames = 16;
/// The code with which prterun ends when it has itself printed what it does not like.
constexpr int kRefusedByMpirun = 213;
constexpr int kUsageCode = 2;

// Peers may see that a killed rank's connections close, and end because of it, before its parent
// sees its death. A rank that aborts, or is told to end, may do so because another one has ended.
bool is_killed(const RankReport& report) {
  return report.killed_by != 0 && report.killed_by != SIGABRT && report.killed_by != SIGTERM;
}

std::int64_t place_of(const RankReport& report, std::chrono::microseconds lead) {
  return report.ended_at_us - (is_killed(report) ? lead.count() : 0);
}

bool ended_earlier(const RankReport& one, const RankReport& other) {
  return place_of(one, JobMonitor::kHold) < place_of(other, JobMonitor::kHold);
}

void insert_by_time(std::vector<RankReport>& reports, const RankReport& report) {
  reports.insert(std::upper_bound(reports.begin(), reports.end(), report, ended_earlier), report);
}

int shell_code_of(const RankReport& report) {
  return ExitStatus{report.exit_code, report.killed_by}.shell_code();
}

}  // namespace

std::vector<std::string> JobMonitor::take(const RankReport& report, Clock::time_point now) {
  if (report.kind == RankReport::Kind::Started) {
    started_[report.rank] = report;
    const bool all = started_.size() == static_cast<std::size_t>(job_.ranks);
    return job_.announce_placement && all ? placement_lines() : std::vector<std::string>();
  }
  // A rank that has announced its exit ends once more, perhaps because others have ended by then.
  if (!ended_.emplace(report.rank, report).second) return {};
  if (!report.failed() || report.told_to_end) return {};
  if (unnamed_.empty()) unnamed_since_ = now;
  insert_by_time(failed_, report);
  insert_by_time(unnamed_, report);
  return {};
}

void JobMonitor::take_signal(int number, Clock::time_point now) {
  const bool ends_job =
      number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
  if (!ends_job || ending_signal_ != 0) return;
  ending_signal_ = number;
  ending_since_ = now;
  failed_before_signal_ = !failed_.empty();
}

std::vector<std::string> JobMonitor::due_lines(Clock::time_point now) {
  if (unnamed_.empty() || now - unnamed_since_ < kHold) return {};
  return name_failures();
}

std::chrono::milliseconds JobMonitor::time_left(Clock::time_point now) const {
  using std::chrono::ceil;
  using std::chrono::milliseconds;
  constexpr milliseconds kNothingToDo{-1};
  milliseconds left = kNothingToDo;
  const auto note = [&](Clock::time_point due) {
    const auto until = std::max(ceil<milliseconds>(due - now), milliseconds(0));
    left = left < milliseconds(0) ? until : std::min(left, until);
  };
  if (!unnamed_.empty()) note(unnamed_since_ + kHold);
  const bool waits_for_start = ending_signal_ != 0 && std::ssize(started_) < job_.ranks;
  if (waits_for_start && now < ending_since_ + kStartGrace) note(ending_since_ + kStartGrace);
  return left;
}

bool JobMonitor::wants_kill(Clock::time_point now) const {
  return ending_signal_ != 0 && std::ssize(started_) < job_.ranks &&
         now >= ending_since_ + kStartGrace;
}

std::vector<std::string> JobMonitor::closing_lines(const ExitStatus& mpirun) {
  std::vector<std::string> lines = name_failures();
  if (std::ssize(failed_) > kMostNames) {
    lines.push_back(fmt::format("{} more ranks failed", std::ssize(failed_) - kMostNames));
  }
  if (never_started(mpirun)) {
    lines.push_back(fmt::format(
        "mpirun ended with code {} before any rank was heard of{}", mpirun.shell_code(),
        job_.extra_mpi_flags.empty()
            ? std::string()
            : fmt::format("; expected flags that it knows, found --extra-mpi-flags '{}'",
                          job_.extra_mpi_flags)));
  }
  if (mpirun.killed_by != 0 && ending_signal_ == 0) {
    lines.push_back(
        fmt::format("mpirun was killed by signal {}", name_of_signal(mpirun.killed_by)));
  }
  if (!job_.fault_tolerant || ending_signal_ != 0) return lines;
  // A rank that exits with a code ends the job under fault tolerance too.
  const bool has_exited =
      std::ranges::any_of(failed_, [](const RankReport& report) { return report.killed_by == 0; });
  for (const auto& rank : silent_ranks()) {
    lines.push_back(fmt::format(
        "rank {} on host {} (pid {}) ended without a word: {}", rank.rank, rank.host, rank.pid,
        has_exited ? "mpirun ended it, because another rank exited with an error"
                   : "its watching bfrun was killed"));
  }
  return lines;
}

int JobMonitor::exit_code(const ExitStatus& mpirun) const {
  const int code = mpirun.shell_code();
  if (ending_signal_ != 0 && !failed_before_signal_ && code != 0) return 128 + ending_signal_;
  if (refused_flags(mpirun)) return kUsageCode;
  if (mpirun.killed_by == 0 && !failed_.empty()) return shell_code_of(failed_.front());
  if (code != 0) return code;
  return job_.fault_tolerant && !silent_ranks().empty() ? 1 : 0;
}

std::vector<std::string> JobMonitor::placement_lines() const {
  std::map<std::string, std::pair<int, Placement>> hosts;
  for (const auto& [rank, report] : started_) {
    auto& [ranks, placement] = hosts[report.host];
    ++ranks;
    placement = report.placement;
  }
  const auto first = hosts.begin()->second.second;
  const bool same = std::all_of(hosts.begin(), hosts.end(),
                                [&](const auto& host) { return host.second.second == first; });
  if (same) return {describe(job_.ranks, static_cast<int>(hosts.size()), first, job_.notes)};
  std::vector<std::string> lines;
  for (const auto& [name, host] : hosts) {
    lines.push_back(
        fmt::format("host {}: {}", name, describe(host.first, 1, host.second, job_.notes)));
  }
  return lines;
}

std::vector<std::string> JobMonitor::name_failures() {
  std::vector<std::string> lines;
  for (const RankReport& report : unnamed_) {
    if (named_ < kMostNames) lines.push_back(describe_end(report));
    ++named_;
  }
  unnamed_.clear();
  return lines;
}

bool JobMonitor::never_started(const ExitStatus& mpirun) const {
  return mpirun.code != 0 && started_.empty() && ending_signal_ == 0;
}

bool JobMonitor::refused_flags(const ExitStatus& mpirun) const {
  return never_started(mpirun) && mpirun.code == kRefusedByMpirun && !job_.extra_mpi_flags.empty();
}

std::vector<RankReport> JobMonitor::silent_ranks() const {
  std::vector<RankReport> silent;
  for (const auto& [rank, report] : started_) {
    if (!ended_.contains(rank)) silent.push_back(report);
  }
  return silent;
}

}  // namespace bluefog::bfrun
