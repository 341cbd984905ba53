#include "tools/bfrun/job/monitor/respawns.hpp"

#include <fmt/format.h>

namespace bluefog::bfrun {

void Respawns::take(const RankReport& report, Clock::time_point now) {
  switch (report.kind) {
    case RankReport::Kind::Started:
      absent_.erase(report.rank);
      departed_.erase(report.rank);
      if (on_their_way_.contains(report.rank)) {
        restarted_at_[report.rank] = now;
      }
      return;
    case RankReport::Kind::Joining:
      have_joined_.insert(report.rank);
      members_.insert(report.rank);
      on_their_way_.erase(report.rank);
      return;
    case RankReport::Kind::Departed:
      members_.erase(report.rank);
      departed_.insert(report.rank);
      return;
    case RankReport::Kind::Leaving:
      return;
    case RankReport::Kind::Exiting:
    case RankReport::Kind::Ended:
      members_.erase(report.rank);
      on_their_way_.erase(report.rank);
      if (!report.failed() && !ended_well_ && !departed_.contains(report.rank)) {
        ended_well_ = report.rank;
      }
  }
}

bool Respawns::is_absence(const RankReport& report) const {
  const auto found = on_their_way_.find(report.rank);
  return report.kind == RankReport::Kind::Ended && !report.failed() &&
         found != on_their_way_.end() && !found->second.is_anew && !found->second.start_at;
}

Respawns::Withdrawn Respawns::take_absence(const RankReport& report, Clock::time_point now) {
  RankReport counted = report;
  counted.exit_code = 1;
  counted = on_their_way_.at(report.rank).end.value_or(counted);
  counted.told_to_end = false;
  take(counted, now);
  absent_.insert(report.rank);
  return {
      .rank = report.rank,
      .end = counted,
      .line = fmt::format("{} before it had joined the others: it does not count as a rank that "
                          "has ended well",
                          describe_end(report))};
}

Respawns::Decision Respawns::decide(int rank, const std::optional<RankReport>& end,
                                    Clock::time_point now) {
  if (most_ == 0) {
    return {};
  }
  members_.erase(rank);
  // Its process has said nothing of its end, or could not be started at all.
  const bool was_on_its_way = on_their_way_.erase(rank) > 0;
  if (const std::string reason = reason_against(rank); !reason.empty()) {
    return {.lines = {fmt::format("rank {} is not started again: {}", rank, reason)}};
  }
  const auto restarted = restarted_at_.find(rank);
  const bool is_soon =
      was_on_its_way || (restarted != restarted_at_.end() && now - restarted->second < kPause);
  const bool is_anew = !have_all_joined();
  on_their_way_[rank] = {.end = end, .start_at = is_soon ? now + kPause : now, .is_anew = is_anew};
  ++made_;
  return {.is_granted = true,
          .lines = {fmt::format("rank {} is started again{}{}: {} of {} restarts are left "
                                "(--respawn)",
                                rank, is_soon ? " in 1 s, as it ended within 1 s of its start" : "",
                                is_anew ? ", since the others wait for it in init" : "",
                                most_ - made_, most_)}};
}

bool Respawns::can_be_joined() const {
  return have_all_joined() && !ended_well_ && !members_.empty();
}

bool Respawns::remove(int rank) {
  members_.erase(rank);
  restarted_at_.erase(rank);
  const auto node = on_their_way_.extract(rank);
  return !node.empty() && node.mapped().start_at.has_value();
}

std::string Respawns::reason_against(int rank) const {
  if (!have_all_joined() && have_joined_.contains(rank)) {
    return fmt::format(
        "it ended in init (Context::create), to which {} of {} ranks have come: nobody can take its "
        "place there",
        have_joined_.size(), ranks_);
  }
  if (ended_well_) {
    return fmt::format("rank {} has ended well, and the others may be about to", *ended_well_);
  }
  if (made_ >= most_) {
    return fmt::format("0 of {} restarts are left (--respawn)", most_);
  }
  return have_all_joined() && members_.empty()
             ? fmt::format("no rank is left that rank {} could join", rank)
             : std::string();
}

void Respawns::take_due(RanksDue& due, Clock::time_point now, std::vector<Withdrawn>& withdrawn) {
  const bool is_over = members_.empty();
  for (auto next = on_their_way_.begin(); next != on_their_way_.end();) {
    const int rank = next->first;
    auto& [end, start_at, is_anew] = next->second;
    if ((is_over && !is_anew) || (ended_well_ && start_at)) {
      (start_at ? due.given_up : due.end).push_back(rank);
      withdrawn.push_back(
          {.rank = rank,
           .end = end,
           .line = start_at ? fmt::format("rank {} is not started again after all: the others have "
                                          "ended, or are about to",
                                          rank)
                            : fmt::format("rank {} is ended: no rank is left that it could join",
                                          rank)});
      next = on_their_way_.erase(next);
      continue;
    }
    if (start_at && now >= *start_at) {
      (is_anew ? due.start_anew : due.start).push_back(rank);
      start_at.reset();
    }
    ++next;
  }
}

std::optional<Respawns::Clock::time_point> Respawns::next() const {
  std::optional<Clock::time_point> first;
  for (const auto& [rank, state] : on_their_way_) {
    if (state.start_at && (!first || *state.start_at < *first)) {
      first = state.start_at;
    }
  }
  return first;
}

}  // namespace bluefog::bfrun
