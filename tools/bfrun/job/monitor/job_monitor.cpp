#include "tools/bfrun/job/monitor/job_monitor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tools/bfrun/job/monitor/placement_lines.hpp"
#include "tools/bfrun/job/signal_watch.hpp"

namespace bluefog::bfrun {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::string> JobMonitor::take(const RankReport& report, Clock::time_point now) {
  if (job_.has_other_hosts) {
    attendance_.take(report, now);
  }
  if (job_.growth && job_.growth->is_leaving(report.rank) &&
      report.kind >= RankReport::Kind::Exiting) {
    respawns_.take_gone(report.rank);  // who leaves because it was told so has not come to the end
  } else if (respawns_.is_absence(report)) {
    const Respawns::Withdrawn absent = respawns_.take_absence(report, now);
    if (roster_.end(*absent.end)) {
      failures_.count_again(*absent.end);
    }
    far_ends_.forget(report.rank);
    take_watcher_end(report.rank, now);
    return {absent.line};
  } else {
    respawns_.take(report, now);
  }
  if (report.kind == RankReport::Kind::Joining || report.kind == RankReport::Kind::Departed) {
    return {};
  }
  if (report.kind == RankReport::Kind::Started) {
    roster_.start(report);
    gone_since_.reset();
    const bool all = std::ssize(roster_.started()) == job_.ranks;
    return job_.has_other_hosts && all ? placement_lines(roster_.started(), job_.notes)
                                       : std::vector<std::string>();
  }
  if (report.kind == RankReport::Kind::Leaving) {
    failures_.take_leaving(report);
    return {};
  }
  // A rank that has announced its exit ends once more, perhaps because others have ended by then.
  if (roster_.end(report)) {
    failures_.take_end(report, now);
  }
  far_ends_.forget(report.rank);
  if (report.kind == RankReport::Kind::Ended) {
    take_watcher_end(report.rank, now);
  }
  return {};
}

void JobMonitor::take_watcher_end(int rank, Clock::time_point now) {
  if (!roster_.has(rank)) {
    return;
  }
  roster_.take_gone(rank);
  respawns_.take_gone(rank);
  const auto end = roster_.end_of(rank);
  if (!failed_since_ && end && ends_job(*end)) {
    failed_since_ = now;
  }
  look_whether_all_are_gone(now);
}

std::vector<std::string> JobMonitor::take_loss(int rank, const std::string& why,
                                               Clock::time_point now) {
  if (roster_.end_of(rank) || lost_.contains(rank)) {
    return {};
  }
  far_ends_.forget(rank);
  const auto start = roster_.start_of(rank);
  const std::string host = start ? start->host : "";
  std::vector<int> ranks{rank};
  for (const RankReport& report : roster_.silent()) {
    if (report.host == host && report.rank != rank && !lost_.contains(report.rank)) {
      ranks.push_back(report.rank);
    }
  }
  std::ranges::sort(ranks);
  lost_.insert(ranks.begin(), ranks.end());
  std::ranges::for_each(ranks, [this](int each) { roster_.take_gone(each); });
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
  if (!roster_.end_of(rank) && !lost_.contains(rank)) {
    far_ends_.take(rank, now);
  }
}

bool JobMonitor::has_too_few() const {
  return roster_.size() - std::ssize(failures_.all()) < job_.enough;
}

bool JobMonitor::ends_job(const RankReport& report) const {
  if (!report.failed() || job_.goes_on_after_failure) {
    return false;
  }
  if (job_.enough > 0) {
    return has_too_few();
  }
  return !job_.fault_tolerant || report.killed_by == 0;
}

void JobMonitor::look_whether_all_are_gone(Clock::time_point now) {
  // mpirun starts no more ranks of a job that has failed.
  const std::int64_t expected = failed_since_ ? std::ssize(roster_.started()) : roster_.size();
  const bool all = roster_.gone() >= expected;
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
  failed_before_signal_ = !failures_.all().empty();
  was_cut_short_ = std::ssize(roster_.ended()) < roster_.size();
}

std::vector<std::string> JobMonitor::due_lines(Clock::time_point now) {
  std::vector<std::string> lines;
  if (std::string line = attendance_.due_line(now); !line.empty()) {
    lines.push_back(std::move(line));
  }
  for (const int rank : far_ends_.overdue(now)) {
    const auto more = take_loss(
        rank,
        fmt::format("a watcher there has ended, and nothing was heard of its rank for {} s",
                    job_.host_silence.count()),
        now);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  if (const auto naming = failures_.naming_time(); naming && now >= *naming) {
    const std::vector<std::string> failures = name_failures();
    lines.insert(lines.end(), failures.begin(), failures.end());
  }
  return lines;
}

std::optional<Overtime::Due> JobMonitor::deadline() const {
  Overtime overtime;
  if (ending_signal_ != 0) {
    overtime.note(ending_since_, kGrace, "signal " + name_of_signal(ending_signal_));
  }
  if (gone_since_) {
    overtime.note(*gone_since_, kGrace, "the end of the last rank");
  }
  if (failed_since_) {
    overtime.note(*failed_since_, kFailureGrace, "the first failure");
  }
  if (!lost_host_.empty()) {
    overtime.note(lost_since_, kGrace, "the loss of " + lost_host_);
  }
  return overtime.first();
}

std::chrono::milliseconds JobMonitor::time_left(Clock::time_point now) const {
  constexpr milliseconds kNothingToDo{-1};
  milliseconds left = kNothingToDo;
  const auto note = [&](const std::optional<Clock::time_point>& due) {
    if (due) {
      const auto until = std::max(std::chrono::ceil<milliseconds>(*due - now), milliseconds(0));
      left = left < milliseconds(0) ? until : std::min(left, until);
    }
  };
  note(failures_.naming_time());
  note(attendance_.due());
  note(far_ends_.due());
  if (ending_signal_ == 0) {
    note(respawns_.next());
    note(job_.growth ? job_.growth->next() : std::nullopt);
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

std::vector<std::string> JobMonitor::name_failures() {
  std::vector<std::string> lines = failures_.name();
  if (std::string line = attendance_.failure_line(); !line.empty()) {
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace bluefog::bfrun
