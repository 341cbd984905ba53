#include "tools/bfrun/job/monitor/failures.hpp"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace bluefog::bfrun {
namespace {

// Peers may see that a killed rank's connections close, and end because of it, before its parent
// sees its death. A rank that aborts, or is told to end, may do so because another one has ended.
bool is_killed(const RankReport& report) {
  return report.killed_by != 0 && report.killed_by != SIGABRT && report.killed_by != SIGTERM;
}

std::int64_t place_of(const RankReport& report) {
  const std::chrono::microseconds lead = Failures::kHold;
  return report.ended_at_us - (is_killed(report) ? lead.count() : 0);
}

bool ended_earlier(const RankReport& one, const RankReport& other) {
  return place_of(one) < place_of(other);
}

}  // namespace

void Failures::take_leaving(const RankReport& report) {
  leaving_at_us_[report.rank] = report.ended_at_us;
}

void Failures::take_end(RankReport report, Clock::time_point now) {
  const auto leaving = leaving_at_us_.extract(report.rank);
  if (!report.failed() || report.told_to_end) {
    return;
  }
  // Others may die of a rank that leaves before it exits.
  const auto longest = std::chrono::microseconds(kLeavingHold).count();
  if (!leaving.empty() && report.ended_at_us - leaving.mapped() < longest) {
    report.ended_at_us = std::min(report.ended_at_us, leaving.mapped());
  }
  if (unnamed_.empty()) {
    unnamed_since_ = now;
  }
  const auto place = std::ranges::upper_bound(unnamed_, report, ended_earlier, &Unnamed::report);
  unnamed_.insert(place, Unnamed{.report = report});
  count_again(report);
}

bool Failures::awaits_earlier_end() const {
  return !failed_.empty() && std::ranges::any_of(leaving_at_us_, [&](const auto& leaving) {
    return leaving.second < failed_.front().ended_at_us;
  });
}

std::optional<Failures::Clock::time_point> Failures::naming_time() const {
  if (unnamed_.empty()) {
    return std::nullopt;
  }
  return unnamed_since_ + (awaits_earlier_end() ? kLeavingHold : kHold);
}

std::vector<std::string> Failures::name() {
  std::vector<std::string> lines;
  for (const auto& [report, notes, counts] : std::exchange(unnamed_, {})) {
    if (named_ < kMostNames) {
      lines.push_back(describe_end(report));
      named_ += counts ? 1 : 0;
    } else {
      ++left_out_;
    }
    lines.insert(lines.end(), notes.begin(), notes.end());
  }
  return lines;
}

bool Failures::add_note(int rank, const std::string& line) {
  // A rank that is started again may fail again within `kHold`: its last failure is meant.
  const auto reversed = std::ranges::find(unnamed_.rbegin(), unnamed_.rend(), rank,
                                          [](const Unnamed& entry) { return entry.report.rank; });
  if (reversed == unnamed_.rend()) {
    return false;
  }
  reversed->notes.push_back(line);
  return true;
}

void Failures::forgive(int rank) {
  std::erase_if(failed_, [&](const RankReport& report) { return report.rank == rank; });
  for (Unnamed& entry : unnamed_) {
    entry.counts = entry.counts && entry.report.rank != rank;
  }
}

void Failures::count_again(const RankReport& report) {
  failed_.insert(std::ranges::upper_bound(failed_, report, ended_earlier), report);
}

}  // namespace bluefog::bfrun
