#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/rank_report.hpp"

namespace bluefog::bfrun {

/// The ranks that are started again after they have failed (`bfrun --respawn`): which may be, when,
/// and whether anybody is left whom they could join.
///
/// A rank is a member from when it begins to join the others (`Context::create`) until it ends. A rank
/// that is started again is on its way from the decision until it is a member anew. Without a member
/// meanwhile the group is gone, and nobody can join it.
///
/// A rank that ends before it has begun to join, while not all have, is started anew: it joins the
/// others as it would have. Later ones join the group that runs, which nobody does once a rank has
/// ended well that had not left the others before: they are about to.
class Respawns {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param most restarts of all ranks together; 0: none, and nothing is said of it.
  Respawns(int ranks, int most) : ranks_(ranks), most_(most) {}

  /// Takes a report of any rank.
  void take(const RankReport& report, Clock::time_point now);
  /// The process of `rank` is gone, whatever was reported.
  void take_gone(int rank) { members_.erase(rank); }

  /// Whether that is the end, with 0, of a process that was to join the others, and had not: it has
  /// done nothing of their work.
  [[nodiscard]] bool is_absence(const RankReport& report) const;
  /// Whether the last process of `rank` has ended so.
  [[nodiscard]] bool is_absent(int rank) const { return absent_.contains(rank); }

  struct Decision {
    bool is_granted = false;
    std::vector<std::string> lines = {};  ///< what is said of it
  };
  /// Whether `rank`, whose process has failed, is to be started again. A grant counts.
  /// @param end as reported, where it was.
  [[nodiscard]] Decision decide(int rank, const std::optional<RankReport>& end,
                                Clock::time_point now);

  /// A rank that was to join, and does not any more.
  struct Withdrawn {
    int rank = 0;
    std::optional<RankReport> end;  ///< how the process before has ended
    std::string line;               ///< what is said of it
  };
  /// Takes an end that is an absence: the failure for which the process was started counts in its place.
  Withdrawn take_absence(const RankReport& report, Clock::time_point now);
  /// Whether a group runs that a process can join, and is not about to end.
  [[nodiscard]] bool can_be_joined() const;
  /// `rank` is new, and is about to be started, to join the others.
  void add(int rank) { on_their_way_[rank] = {}; }
  /// `rank` is not one of the job any more. Returns whether it has no process, as it was to be
  /// started again.
  bool remove(int rank);
  /// Adds what the launcher is to do at `now`, each thing once.
  /// @param withdrawn receives the ranks whose restart counts no more.
  void take_due(RanksDue& due, Clock::time_point now, std::vector<Withdrawn>& withdrawn);
  /// The ranks that have joined, and whose processes are there.
  [[nodiscard]] const std::set<int>& members() const { return members_; }
  /// Whether ranks have left the others before the end of their work, and none has come to it.
  [[nodiscard]] bool have_only_left() const { return !departed_.empty() && !ended_well_; }
  /// A line about a job of which no rank has come to the end of its work.
  [[nodiscard]] static const char* all_have_left(bool were_told) {
    return were_told ? "all ranks have left, as they were told, and none has ended well"
                     : "all ranks have left before the end of their work";
  }
  /// The time at which there will be something to do.
  [[nodiscard]] std::optional<Clock::time_point> next() const;

  /// A rank that ends so soon after it was started again waits as long before the next time, so that
  /// a command that always fails is not started as fast as the machine can.
  static constexpr std::chrono::milliseconds kPause{1000};

 private:
  struct OnItsWay {
    std::optional<RankReport> end;
    std::optional<Clock::time_point> start_at;  ///< nothing once it has been started
    bool is_anew = false;                       ///< it joins no group, but comes to the start
  };

  [[nodiscard]] bool have_all_joined() const { return std::ssize(have_joined_) >= ranks_; }

  /// Why `rank` is not started again; empty where it is.
  [[nodiscard]] std::string reason_against(int rank) const;

  int ranks_;
  int most_;
  int made_ = 0;
  std::set<int> have_joined_;  ///< once, at least
  std::set<int> members_;
  std::set<int> absent_;    ///< `is_absent`
  std::set<int> departed_;  ///< ranks that have left the others, who go on
  std::map<int, OnItsWay> on_their_way_;
  std::map<int, Clock::time_point> restarted_at_;
  std::optional<int> ended_well_;  ///< the first rank that has
};

}  // namespace bluefog::bfrun
