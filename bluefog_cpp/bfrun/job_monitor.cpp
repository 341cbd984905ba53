#include "bluefog_cpp/bfrun/job_monitor.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

namespace bluefog::launcher {
namespace {

constexpr std::size_t kMostNames = 16;

}  // namespace

std::vector<std::string> JobMonitor::take(const RankReport& report) {
  if (report.kind == RankReport::Kind::Started) {
    started_[report.rank] = report;
    const bool all = started_.size() == static_cast<std::size_t>(job_.ranks);
    return job_.announce_placement && all ? placement_lines() : std::vector<std::string>();
  }
  ended_[report.rank] = report;
  if (!report.failed() || report.told_to_end) return {};
  failed_.push_back(report);
  if (failed_.size() > kMostNames) return {};
  return {describe_end(report)};
}

void JobMonitor::take_signal(int number) {
  const bool ends_job =
      number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
  if (!ends_job || ending_signal_ != 0) return;
  ending_signal_ = number;
  failed_before_signal_ = !failed_.empty();
}

std::vector<std::string> JobMonitor::closing_lines() const {
  std::vector<std::string> lines;
  if (failed_.size() > kMostNames) {
    lines.push_back(fmt::format("{} more ranks failed", failed_.size() - kMostNames));
  }
  if (!job_.fault_tolerant || ending_signal_ != 0) return lines;
  for (const auto& rank : silent_ranks()) {
    lines.push_back(fmt::format(
        "rank {} on host {} (pid {}) ended without a word: its watching bfrun was killed",
        rank.rank, rank.host, rank.pid));
  }
  return lines;
}

int JobMonitor::exit_code(const ExitStatus& mpirun) const {
  const int code = mpirun.shell_code();
  if (ending_signal_ != 0 && !failed_before_signal_ && code != 0) return 128 + ending_signal_;
  if (code != 0) return code;
  if (!failed_.empty()) {
    return ExitStatus{failed_.front().exit_code, failed_.front().killed_by}.shell_code();
  }
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

std::vector<RankReport> JobMonitor::silent_ranks() const {
  std::vector<RankReport> silent;
  for (const auto& [rank, report] : started_) {
    if (ended_.count(rank) == 0) silent.push_back(report);
  }
  return silent;
}

}  // namespace bluefog::launcher
