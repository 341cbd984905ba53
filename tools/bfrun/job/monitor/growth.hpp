#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/bfrun/elastic/slots.hpp"
#include "tools/bfrun/job/process.hpp"

namespace bluefog::bfrun {

/// The ranks that come to a job under way, and those that are told to leave it (`bfrun --max-np`).
class Growth {
 public:
  using Clock = std::chrono::steady_clock;

  /// Who says how many slots there are.
  enum class By { Discovery, Signals };

  /// @param slots those of the first ranks are filled.
  /// @param least so many ranks the user's signals, and slots that vanish, leave.
  Growth(Slots slots, By by, int least) : slots_(std::move(slots)), by_(by), least_(least) {}

  /// The slots that there are now.
  void set_hosts(std::vector<HostSlots> hosts) { slots_.set_hosts(std::move(hosts)); }
  /// The user asks for a rank more (1), or one fewer (−1). Returns what is said of it.
  [[nodiscard]] std::string take_wish(int more);

  /// The ranks whose slots have vanished, each once. Of the ranks that are there and stay, `members`,
  /// as many as `least` are kept until others have joined in their place.
  [[nodiscard]] std::vector<int> take_leaving(const std::set<int>& members, RanksDue& due);
  /// Has one of them, that has a process, told to leave.
  void tell(int rank, RanksDue& due, Clock::time_point now);
  /// One of them has no process, as it was to be started again.
  void drop(int rank, RanksDue& due);
  /// Has those killed that were told to leave, and are still there.
  void kill_overdue(RanksDue& due, Clock::time_point now);
  /// Has new ranks started in the slots that are free. Returns them.
  std::vector<int> add(RanksDue& due);

  /// Whether `rank` was told to leave, and has not yet.
  [[nodiscard]] bool is_leaving(int rank) const { return leave_by_.contains(rank); }
  /// The process of a rank that was told to leave is gone.
  void take_left(int rank);
  /// The process of `rank` is gone, and it is not started again.
  void take_over(int rank, bool has_failed);
  /// The time at which there will be somebody to kill.
  [[nodiscard]] std::optional<Clock::time_point> next() const;

  /// Ranks that are told to leave have so long to do it.
  static constexpr std::chrono::milliseconds kLeaveGrace{30'000};

 private:
  [[nodiscard]] std::string reason_of(const std::string& host) const;

  Slots slots_;
  By by_;
  int least_;
  std::map<int, Clock::time_point> leave_by_;  ///< ranks that have been told to leave
  std::set<int> kept_{};                       ///< ranks without a slot of which that was said
};

}  // namespace bluefog::bfrun
