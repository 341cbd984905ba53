#include <fmt/format.h>

#include "tools/bfrun/job/monitor/job_monitor.hpp"

// Ranks that are started again, and their job.
namespace bluefog::bfrun {

Respawns::Decision JobMonitor::decide_restart(int rank, Clock::time_point now) {
  if (ending_signal_ != 0) {
    return {};
  }
  const auto found = ended_.find(rank);
  const auto end = found == ended_.end() ? std::nullopt : std::optional(found->second);
  Respawns::Decision decision = respawns_.decide(rank, end, now);
  if (decision.lines.empty() || failures_.add_note(rank, decision.lines.front())) {
    decision.lines.clear();
  } else if (decision.is_granted && (!end || end->told_to_end)) {
    // Without a restart such an end is named when the job ends; by then this rank has another process.
    decision.lines.insert(
        decision.lines.begin(),
        end ? describe_end(*end) + ", told to end"
            : describe_silent_end(started_[rank], "its watching bfrun was killed"));
  }
  if (!decision.is_granted) {
    return decision;
  }
  ended_.erase(rank);
  gone_.erase(rank);
  gone_since_.reset();
  failures_.forgive(rank);
  if (!has_too_few()) {
    failed_since_.reset();
  }
  return decision;
}

RestartsDue JobMonitor::take_restarts(Clock::time_point now) {
  if (ending_signal_ != 0) {
    return {};
  }
  std::vector<Respawns::Withdrawn> withdrawn;
  RestartsDue due = respawns_.due(now, withdrawn);
  gone_.insert(due.given_up.begin(), due.given_up.end());
  for (const auto& [rank, end, line] : withdrawn) {
    if (end && ended_.emplace(rank, *end).second && !end->told_to_end) {
      failures_.count_again(*end);
    }
    if (!failures_.add_note(rank, line)) {
      due.lines.push_back(line);
    }
  }
  return due;
}

}  // namespace bluefog::bfrun
