#include <fmt/format.h>

#include <algorithm>

#include "tools/bfrun/job/monitor/job_monitor.hpp"

// Ranks that come and go, and their job.
namespace bluefog::bfrun {

Respawns::Decision JobMonitor::decide_restart(int rank, Clock::time_point now) {
  if (ending_signal_ != 0) {
    return {};
  }
  const auto end = roster_.end_of(rank);
  Respawns::Decision decision = respawns_.decide(rank, end, now);
  if (decision.lines.empty() || failures_.add_note(rank, decision.lines.front())) {
    decision.lines.clear();
  } else if (decision.is_granted && (!end || end->told_to_end)) {
    // Without a restart such an end is named when the job ends; by then this rank has another process.
    decision.lines.insert(decision.lines.begin(), end_of(rank) + (end ? ", told to end" : ""));
  }
  if (!decision.is_granted) {
    return decision;
  }
  roster_.revive(rank);
  gone_since_.reset();
  failures_.forgive(rank);
  if (!has_too_few()) {
    failed_since_.reset();
  }
  return decision;
}

void JobMonitor::take_restarts(RanksDue& due, Clock::time_point now) {
  std::vector<Respawns::Withdrawn> withdrawn;
  respawns_.take_due(due, now, withdrawn);
  std::ranges::for_each(due.given_up, [this](int rank) { roster_.take_gone(rank); });
  std::ranges::for_each(due.end, [this](int rank) { roster_.dismiss(rank); });
  for (const auto& [rank, end, line] : withdrawn) {
    if (end && roster_.end(*end) && !end->told_to_end) {
      failures_.count_again(*end);
    }
    if (!failures_.add_note(rank, line)) {
      due.lines.push_back(line);
    }
  }
}

RanksDue JobMonitor::take_due(Clock::time_point now) {
  RanksDue due;
  if (ending_signal_ != 0) {
    return due;
  }
  if (job_.growth) {
    tell_to_leave(due, now);  // one that is to be started again may have no slot any more
  }
  take_restarts(due, now);
  if (job_.growth && respawns_.can_be_joined() && !failed_since_) {
    for (const int rank : job_.growth->add(due)) {
      roster_.add(rank);
      respawns_.add(rank);
      gone_since_.reset();
    }
  }
  return due;
}

void JobMonitor::tell_to_leave(RanksDue& due, Clock::time_point now) {
  for (const int rank : job_.growth->take_leaving(respawns_.members(), due)) {
    if (respawns_.remove(rank)) {
      job_.growth->drop(rank, due);
      remove(rank, now);
    } else {
      job_.growth->tell(rank, due, now);
    }
  }
  job_.growth->kill_overdue(due, now);
}

bool JobMonitor::take_left(int rank, std::vector<std::string>& lines, Clock::time_point now) {
  if (!job_.growth || !job_.growth->is_leaving(rank)) {
    return false;
  }
  const auto end = roster_.end_of(rank);
  const bool is_well = end && !end->failed();
  lines.push_back(is_well ? fmt::format("rank {} has left", rank)
                          : end_of(rank) + ", told to leave");
  job_.growth->take_left(rank);
  static_cast<void>(respawns_.remove(rank));
  remove(rank, now);
  return true;
}

void JobMonitor::remove(int rank, Clock::time_point now) {
  roster_.remove(rank);
  failures_.forgive(rank);
  look_whether_all_are_gone(now);
}

}  // namespace bluefog::bfrun
