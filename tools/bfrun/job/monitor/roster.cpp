#include "tools/bfrun/job/monitor/roster.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace bluefog::bfrun {
namespace {

std::optional<RankReport> find(const std::map<int, RankReport>& reports, int rank) {
  const auto found = reports.find(rank);
  return found == reports.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

Roster::Roster(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    ranks_.insert(ranks_.end(), rank);
  }
}

void Roster::remove(int rank) {
  ranks_.erase(rank);
  started_.erase(rank);
  revive(rank);
}

void Roster::revive(int rank) {
  ended_.erase(rank);
  gone_.erase(rank);
}

std::optional<RankReport> Roster::start_of(int rank) const { return find(started_, rank); }

std::optional<RankReport> Roster::end_of(int rank) const { return find(ended_, rank); }

std::string Roster::describe_end_of(int rank) const {
  if (const auto end = end_of(rank)) {
    return describe_end(*end);
  }
  const auto start = start_of(rank);
  return start ? describe_silent_end(*start, "its watching bfrun was killed")
               : fmt::format("rank {} ended without a word", rank);
}

std::int64_t Roster::ended_well() const {
  return std::ranges::count_if(ended_, [](const auto& end) { return !end.second.failed(); });
}

std::vector<RankReport> Roster::silent() const {
  std::vector<RankReport> silent;
  for (const auto& [rank, report] : started_) {
    if (!ended_.contains(rank)) {
      silent.push_back(report);
    }
  }
  return silent;
}

std::vector<int> Roster::unheard() const {
  std::vector<int> unheard;
  // Nobody is heard of where flags of mpirun's send standard error elsewhere.
  if (started_.empty()) {
    return unheard;
  }
  for (const int rank : ranks_) {
    if (!started_.contains(rank) && !dismissed_.contains(rank)) {
      unheard.push_back(rank);
    }
  }
  return unheard;
}

}  // namespace bluefog::bfrun
