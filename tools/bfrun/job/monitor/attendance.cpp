#include "tools/bfrun/job/monitor/attendance.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace bluefog::bfrun {
namespace {

constexpr std::size_t kMostMissing = 16;

/// A watcher says when its rank joins; ranks of hosts without bfrun have none.
bool is_watched(const RankReport& report) { return report.placement.cores > 0; }

}  // namespace

void Attendance::take(const RankReport& report, Clock::time_point now) {
  switch (report.kind) {
    case RankReport::Kind::Started:
      heard_of_.insert(report.rank);
      here_[report.rank] = report;
      return;
    case RankReport::Kind::Joining:
      if (joined_.empty()) {
        since_ = now;
      }
      joined_.insert(report.rank);
      return;
    case RankReport::Kind::Departed:
    case RankReport::Kind::Leaving:
      return;
    case RankReport::Kind::Exiting:
    case RankReport::Kind::Ended:
      here_.erase(report.rank);
      if (report.failed() && !report.told_to_end && joined_.contains(report.rank) &&
          !missing_at_failure_) {
        missing_at_failure_ = names_of_missing();
      }
  }
}

std::optional<Attendance::Clock::time_point> Attendance::due() const {
  const bool is_waiting = patience_.count() > 0 && !is_told_ && !joined_.empty() &&
                          !missing_at_failure_ && std::ssize(joined_) < ranks_;
  return is_waiting ? std::optional(since_ + patience_) : std::nullopt;
}

std::string Attendance::due_line(Clock::time_point now) {
  const auto at = due();
  if (!at || now < *at) {
    return {};
  }
  is_told_ = true;
  const std::string missing = names_of_missing();
  if (missing.empty()) {
    return {};
  }
  const std::chrono::duration<double> patience = patience_;
  return fmt::format(
      "{} of {} ranks have waited {:.3g} s in init (Context::create) for those that have not come "
      "to it: {}",
      joined_.size(), ranks_, patience.count(), missing);
}

std::string Attendance::failure_line() {
  if (!missing_at_failure_ || missing_at_failure_->empty()) {
    return {};
  }
  return fmt::format("ranks waited in init (Context::create) for those that had not come to it: {}",
                     std::exchange(*missing_at_failure_, {}));
}

std::string Attendance::names_of_missing() const {
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto found = here_.find(rank);
    if (!heard_of_.contains(rank)) {
      names.push_back(fmt::format("rank {}, which was never heard of", rank));
    } else if (found != here_.end() && is_watched(found->second) && !joined_.contains(rank)) {
      names.push_back(
          fmt::format("rank {} on host {} (pid {})", rank, found->second.host, found->second.pid));
    }
  }
  const std::size_t more = names.size() > kMostMissing ? names.size() - kMostMissing : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace bluefog::bfrun
