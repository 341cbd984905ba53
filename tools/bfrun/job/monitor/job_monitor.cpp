#include "tools/bfrun/job/monitor/job_monitor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "tools/bfrun/job/signal_watch.hpp"

namespace bluefog::bfrun {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

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

}  // namespace

std::vector<std::string> JobMonitor::take(const RankReport& report, Clock::time_point now) {
  if (job_.has_other_hosts) {
    attendance_.take(report, now);
  }
  if (report.kind == RankReport::Kind::Joining) {
    return {};
  }
  if (report.kind == RankReport::Kind::Started) {
    started_[report.rank] = report;
    gone_since_.reset();
    const bool all = std::ssize(started_) == job_.ranks;
    return job_.has_other_hosts && all ? placement_lines() : std::vector<std::string>();
  }
  if (report.kind == RankReport::Kind::Leaving) {
    leaving_at_us_[report.rank] = report.ended_at_us;
    return {};
  }
  // A rank that has announced its exit ends once more, perhaps because others have ended by then.
  if (ended_.emplace(report.rank, report).second) {
    take_failure(report, now);
  }
  far_ends_.erase(report.rank);
  if (report.kind == RankReport::Kind::Ended) {
    take_watcher_end(report.rank, now);
  }
  return {};
}

void JobMonitor::take_failure(RankReport report, Clock::time_point now) {
  if (!report.failed() || report.told_to_end) {
    return;
  }
  // Others may die of a rank that leaves before it exits.
  const auto leaving = leaving_at_us_.find(report.rank);
  const auto longest = std::chrono::microseconds(kLeavingHold).count();
  if (leaving != leaving_at_us_.end() && report.ended_at_us - leaving->second < longest) {
    report.ended_at_us = std::min(report.ended_at_us, leaving->second);
  }
  if (unnamed_.empty()) {
    unnamed_since_ = now;
  }
  insert_by_time(failed_, report);
  insert_by_time(unnamed_, report);
}

void JobMonitor::take_watcher_end(int rank, Clock::time_point now) {
  gone_.insert(rank);
  const auto end = ended_.find(rank);
  if (!failed_since_ && end != ended_.end() && ends_job(end->second)) {
    failed_since_ = now;
  }
  look_whether_all_are_gone(now);
}

std::vector<std::string> JobMonitor::take_loss(int rank, const std::string& why,
                                               Clock::time_point now) {
  if (ended_.contains(rank) || lost_.contains(rank)) {
    return {};
  }
  far_ends_.erase(rank);
  const auto found = started_.find(rank);
  const std::string host = found == started_.end() ? "" : found->second.host;
  std::vector<int> ranks{rank};
  for (const RankReport& report : silent_ranks()) {
    if (report.host == host && report.rank != rank && !lost_.contains(report.rank)) {
      ranks.push_back(report.rank);
    }
  }
  std::ranges::sort(ranks);
  lost_.insert(ranks.begin(), ranks.end());
  gone_.insert(ranks.begin(), ranks.end());
  const std::string name = host.empty() ? fmt::format("the host of rank {}", rank) : "host " + host;
  if (!job_.fault_tolerant && !job_.goes_on_after_failure && lost_host_.empty()) {
    lost_host_ = name;
    lost_since_ = now;
  }
  look_whether_all_are_gone(now);
  return {fmt::format("{} is lost, with rank{} {}: {}", name, ranks.size() == 1 ? "" : "s",
                      fmt::join(ranks, ", "), why)};
}

void JobMonitor::take_far_end(int rank, Clock::time_point now) {
  if (!ended_.contains(rank) && !lost_.contains(rank)) {
    far_ends_.emplace(rank, now);
  }
}

std::optional<JobMonitor::Clock::time_point> JobMonitor::first_far_end() const {
  if (far_ends_.empty() || job_.host_silence <= seconds(0)) {
    return std::nullopt;
  }
  const auto first = std::ranges::min_element(
      far_ends_, [](const auto& one, const auto& other) { return one.second < other.second; });
  return first->second + job_.host_silence;
}

bool JobMonitor::ends_job(const RankReport& report) const {
  if (!report.failed() || job_.goes_on_after_failure) {
    return false;
  }
  if (job_.enough > 0) {
    return job_.ranks - std::ssize(failed_) < job_.enough;
  }
  return !job_.fault_tolerant || report.killed_by == 0;
}

void JobMonitor::look_whether_all_are_gone(Clock::time_point now) {
  // mpirun starts no more ranks of a job that has failed.
  const std::int64_t expected = failed_since_ ? std::ssize(started_) : job_.ranks;
  const bool all = std::ssize(gone_) >= expected;
  if (all && !gone_since_) {
    gone_since_ = now;
  }
}

void JobMonitor::take_signal(int number, Clock::time_point now) {
  if (!ends_programs(number) || ending_signal_ != 0) {
    return;
  }
  ending_signal_ = number;
  ending_since_ = now;
  failed_before_signal_ = !failed_.empty();
}

bool JobMonitor::awaits_earlier_end() const {
  return !failed_.empty() && std::ranges::any_of(leaving_at_us_, [&](const auto& leaving) {
    return !ended_.contains(leaving.first) && leaving.second < failed_.front().ended_at_us;
  });
}

JobMonitor::Clock::time_point JobMonitor::naming_time() const {
  return unnamed_since_ + (awaits_earlier_end() ? kLeavingHold : kHold);
}

std::vector<std::string> JobMonitor::due_lines(Clock::time_point now) {
  std::vector<std::string> lines;
  if (std::string line = attendance_.due_line(now); !line.empty()) {
    lines.push_back(std::move(line));
  }
  for (auto at = first_far_end(); at && now >= *at; at = first_far_end()) {
    const auto first = std::ranges::find_if(
        far_ends_, [&](const auto& end) { return end.second + job_.host_silence == *at; });
    const auto more = take_loss(
        first->first,
        fmt::format("a watcher there has ended, and nothing was heard of its rank for {} s",
                    job_.host_silence.count()),
        now);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  if (!unnamed_.empty() && now >= naming_time()) {
    const std::vector<std::string> failures = name_failures();
    lines.insert(lines.end(), failures.begin(), failures.end());
  }
  return lines;
}

std::optional<JobMonitor::Deadline> JobMonitor::deadline() const {
  std::optional<Deadline> first;
  const auto note = [&](Clock::time_point since, milliseconds grace, const std::string& reason) {
    const auto at = since + grace;
    if (first && first->at <= at) {
      return;
    }
    first =
        Deadline{at, fmt::format("{} s after {}", duration_cast<seconds>(grace).count(), reason)};
  };
  if (ending_signal_ != 0) {
    note(ending_since_, kGrace, "signal " + name_of_signal(ending_signal_));
  }
  if (gone_since_) {
    note(*gone_since_, kGrace, "the end of the last rank");
  }
  if (failed_since_) {
    note(*failed_since_, kFailureGrace, "the first failure");
  }
  if (!lost_host_.empty()) {
    note(lost_since_, kGrace, "the loss of " + lost_host_);
  }
  return first;
}

std::chrono::milliseconds JobMonitor::time_left(Clock::time_point now) const {
  constexpr milliseconds kNothingToDo{-1};
  milliseconds left = kNothingToDo;
  const auto note = [&](Clock::time_point due) {
    const auto until = std::max(std::chrono::ceil<milliseconds>(due - now), milliseconds(0));
    left = left < milliseconds(0) ? until : std::min(left, until);
  };
  if (!unnamed_.empty()) {
    note(naming_time());
  }
  if (const auto due = attendance_.due()) {
    note(*due);
  }
  if (const auto due = first_far_end()) {
    note(*due);
  }
  if (const auto due = deadline(); due && overdue_.empty()) {
    note(due->at);
  }
  return left;
}

bool JobMonitor::wants_kill(Clock::time_point now) {
  const auto due = deadline();
  if (!due || now < due->at || !overdue_.empty()) {
    return false;
  }
  overdue_ = due->reason;
  return true;
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
  const auto is_watched = [](const Placement& placement) { return placement.cores > 0; };
  if (same && is_watched(first)) {
    return {describe(job_.ranks, static_cast<int>(hosts.size()), first, job_.notes)};
  }
  std::vector<std::string> lines;
  for (const auto& [name, host] : hosts) {
    const std::string text = is_watched(host.second)
                                 ? describe(host.first, 1, host.second, job_.notes)
                                 : "not bound, as bfrun is not installed there at the same path";
    lines.push_back(fmt::format("host {}: {}", name, text));
  }
  return lines;
}

std::vector<std::string> JobMonitor::name_failures() {
  std::vector<std::string> lines;
  for (const RankReport& report : unnamed_) {
    if (named_ < kMostNames) {
      lines.push_back(describe_end(report));
    }
    ++named_;
  }
  unnamed_.clear();
  if (std::string line = attendance_.failure_line(); !line.empty()) {
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<RankReport> JobMonitor::silent_ranks() const {
  std::vector<RankReport> silent;
  for (const auto& [rank, report] : started_) {
    if (!ended_.contains(rank)) {
      silent.push_back(report);
    }
  }
  return silent;
}

}  // namespace bluefog::bfrun
