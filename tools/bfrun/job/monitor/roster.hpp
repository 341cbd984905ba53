#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/bfrun/job/rank_report.hpp"

namespace bluefog::bfrun {

/// The ranks of a job, those that have ended included, and what was heard of each.
class Roster {
 public:
  /// @param ranks at first, from 0 on.
  explicit Roster(int ranks);

  void add(int rank) { ranks_.insert(rank); }
  /// It is no rank of the job any more, and leaves no trace.
  void remove(int rank);
  /// It gets another process.
  void revive(int rank);

  void start(const RankReport& report) { started_[report.rank] = report; }
  /// False where it has ended before: the first word counts.
  bool end(const RankReport& report) { return ended_.emplace(report.rank, report).second; }
  void take_gone(int rank) { gone_.insert(rank); }

  [[nodiscard]] bool has(int rank) const { return ranks_.contains(rank); }
  [[nodiscard]] std::int64_t size() const { return std::ssize(ranks_); }
  [[nodiscard]] const std::map<int, RankReport>& started() const { return started_; }
  [[nodiscard]] const std::map<int, RankReport>& ended() const { return ended_; }
  [[nodiscard]] std::int64_t gone() const { return std::ssize(gone_); }
  [[nodiscard]] std::optional<RankReport> start_of(int rank) const;
  [[nodiscard]] std::optional<RankReport> end_of(int rank) const;
  /// How it has ended, in words.
  [[nodiscard]] std::string describe_end_of(int rank) const;

  [[nodiscard]] std::int64_t ended_well() const;
  /// The ranks that have started, and not said how they ended.
  [[nodiscard]] std::vector<RankReport> silent() const;
  /// The ranks that have not started, if any has.
  [[nodiscard]] std::vector<int> unheard() const;
  /// Nobody misses the rank if it is never heard of: it was ended as it began.
  void dismiss(int rank) { dismissed_.insert(rank); }

 private:
  std::set<int> ranks_;
  std::map<int, RankReport> started_;
  std::map<int, RankReport> ended_;
  std::set<int> gone_;  ///< ranks whose processes are no more
  std::set<int> dismissed_;
};

}  // namespace bluefog::bfrun
