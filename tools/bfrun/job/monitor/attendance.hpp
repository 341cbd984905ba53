#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/bfrun/job/rank_report.hpp"

namespace bluefog::bfrun {

/// The ranks of a job that have begun to join the others (`init`, `Context::create`). A rank that
/// waits sees by itself those of its own host alone.
class Attendance {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param patience how long ranks wait before those that have not come are named; 0: for ever.
  Attendance(int ranks, std::chrono::milliseconds patience) : ranks_(ranks), patience_(patience) {}

  void take(const RankReport& report, Clock::time_point now);

  /// The time at which there will be something to say.
  [[nodiscard]] std::optional<Clock::time_point> due() const;
  /// The line that is due at `now`, once: which ranks the others wait for. Empty where there is
  /// none.
  [[nodiscard]] std::string due_line(Clock::time_point now);
  /// The line on the ranks that had not come when one that waited for them failed, once.
  [[nodiscard]] std::string failure_line();

 private:
  [[nodiscard]] std::string names_of_missing() const;

  int ranks_;
  std::chrono::milliseconds patience_;
  Clock::time_point since_;         ///< a rank waits
  std::map<int, RankReport> here_;  ///< started and not ended
  std::set<int> heard_of_;
  std::set<int> joined_;
  bool is_told_ = false;
  std::optional<std::string> missing_at_failure_;
};

}  // namespace bluefog::bfrun
