#include "tools/bfrun/job/monitor/growth.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace bluefog::bfrun {
namespace {

std::string number_of(int count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

std::string Growth::take_wish(int more) {
  const char* const wish = more > 0 ? "asked for one rank more" : "asked for one rank fewer";
  if (by_ == By::Discovery) {
    return fmt::format("{}, but --host-discovery says how many there are", wish);
  }
  if (more > 0 && slots_.occupied() >= slots_.most()) {
    return fmt::format("{}: there are {}, which is --max-np", wish, slots_.most());
  }
  if (more < 0 && slots_.occupied() <= least_) {
    return fmt::format("{}: there are {}, --min-np is {}", wish, slots_.occupied(), least_);
  }
  slots_.set_hosts({{std::string(kThisMachine), slots_.total() + more}});
  return {};
}

std::vector<int> Growth::take_leaving(const std::set<int>& members, RanksDue& due) {
  auto staying = std::ranges::count_if(members, [&](int rank) { return !is_leaving(rank); });
  return slots_.take_leaving([&](int rank) {
    if (!members.contains(rank)) {
      return true;
    }
    if (staying <= least_) {
      if (kept_.insert(rank).second) {
        due.lines.push_back(fmt::format("rank {} stays until others have joined (--min-np {}): {}",
                                        rank, least_, reason_of(slots_.host_of(rank))));
      }
      return false;
    }
    --staying;
    return true;
  });
}

void Growth::tell(int rank, RanksDue& due, Clock::time_point now) {
  due.leave.push_back(rank);
  leave_by_[rank] = now + kLeaveGrace;
  due.lines.push_back(
      fmt::format("rank {} is told to leave (SIGTERM): {}", rank, reason_of(slots_.host_of(rank))));
}

void Growth::drop(int rank, RanksDue& due) {
  ++due.left;
  due.lines.push_back(fmt::format("rank {} is not started again after all: {}", rank,
                                  reason_of(slots_.host_of(rank))));
  slots_.free(rank);
}

void Growth::kill_overdue(RanksDue& due, Clock::time_point now) {
  for (auto& [rank, by] : leave_by_) {
    if (by <= now) {
      due.kill.push_back(rank);
      by = Clock::time_point::max();
      due.lines.push_back(
          fmt::format("rank {} was still there {} s after it was told to leave, and is "
                      "killed",
                      rank, kLeaveGrace.count() / 1000));
    }
  }
}

std::vector<int> Growth::add(RanksDue& due) {
  std::vector<int> ranks;
  for (const Slots::NewRank& added : slots_.fill()) {
    ranks.push_back(added.rank);
    due.add.push_back(added);
    due.lines.push_back(fmt::format("rank {} is started, to join the others: {}", added.rank,
                                    reason_of(added.slot.host)));
  }
  return ranks;
}

void Growth::take_left(int rank) {
  leave_by_.erase(rank);
  kept_.erase(rank);
  slots_.free(rank);
}

void Growth::take_over(int rank, bool has_failed) {
  kept_.erase(rank);
  has_failed ? slots_.spoil(rank) : slots_.free(rank);
}

std::optional<Growth::Clock::time_point> Growth::next() const {
  std::optional<Clock::time_point> first;
  for (const auto& [rank, by] : leave_by_) {
    if (by != Clock::time_point::max() && (!first || by < *first)) {
      first = by;
    }
  }
  return first;
}

std::string Growth::reason_of(const std::string& host) const {
  const int count = slots_.slots_of(host);
  if (by_ == By::Signals) {
    return fmt::format("{} {} wanted (signal)", number_of(count, "rank"),
                       count == 1 ? "is" : "are");
  }
  return fmt::format("{} has {} now (--host-discovery)",
                     host == kThisMachine ? std::string("this machine") : host,
                     number_of(count, "slot"));
}

}  // namespace bluefog::bfrun
