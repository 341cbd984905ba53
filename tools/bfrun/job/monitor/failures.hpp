#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/bfrun/job/rank_report.hpp"

namespace bluefog::bfrun {

/// The ranks of a job that have failed by themselves: which one was the first, and which are still
/// to be named.
class Failures {
 public:
  using Clock = std::chrono::steady_clock;

  /// A rank has begun to leave, with a code that it does not know yet.
  void take_leaving(const RankReport& report);
  /// The first word of a rank's end, also of one that is no failure.
  void take_end(RankReport report, Clock::time_point now);

  /// The failures that count, by the time at which the ranks ended.
  [[nodiscard]] const std::vector<RankReport>& all() const { return failed_; }
  /// Whether another rank had begun to leave before the first that has failed, and its end has not
  /// been heard of.
  [[nodiscard]] bool awaits_earlier_end() const;

  /// When the ranks that are not named yet are to be; nothing where there are none.
  [[nodiscard]] std::optional<Clock::time_point> naming_time() const;
  /// A line for each of these, and the notes on it; after `kMostNames` lines only notes.
  [[nodiscard]] std::vector<std::string> name();
  /// The failures that count and got no line.
  [[nodiscard]] int left_out() const { return left_out_; }

  /// Has `line` said after the one that is to name the rank; false where none is.
  [[nodiscard]] bool add_note(int rank, const std::string& line);
  /// The failure of `rank` counts no more, since it is started again. It is named all the same.
  void forgive(int rank);
  /// An end that was forgiven counts after all.
  void count_again(const RankReport& report);

  static constexpr std::chrono::milliseconds kHold{250};
  static constexpr std::chrono::milliseconds kLeavingHold{5000};

 private:
  static constexpr int kMostNames = 16;

  struct Unnamed {
    RankReport report;
    std::vector<std::string> notes = {};
    bool counts = true;
  };

  std::vector<RankReport> failed_;
  std::vector<Unnamed> unnamed_;  ///< by time, too
  Clock::time_point unnamed_since_;
  std::map<int, std::int64_t> leaving_at_us_;  ///< of ranks that have begun to leave
  int named_ = 0;
  int left_out_ = 0;
};

}  // namespace bluefog::bfrun
