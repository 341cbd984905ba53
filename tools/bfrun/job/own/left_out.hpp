#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

namespace bluefog::bfrun {

/// The ranks without which the others have gone on, and which may be stopped, or hang, for ever: each
/// has `kGrace` to find out and end.
class LeftOut {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::milliseconds kGrace{30'000};

  void take(int rank, Clock::time_point now) { until_.try_emplace(rank, now + kGrace); }
  /// It has ended.
  void forget(int rank) { until_.erase(rank); }
  /// The ranks whose time is over, each once.
  [[nodiscard]] std::vector<int> overdue(Clock::time_point now) {
    std::vector<int> ranks;
    std::erase_if(until_, [&](const auto& entry) {
      if (entry.second <= now) {
        ranks.push_back(entry.first);
      }
      return entry.second <= now;
    });
    return ranks;
  }
  /// The time until there is one; negative: there is none.
  [[nodiscard]] std::chrono::milliseconds time_left(Clock::time_point now) const {
    std::chrono::milliseconds least(-1);
    for (const auto& [rank, until] : until_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
      least = least.count() < 0 ? left : std::min(least, left);
    }
    return least;
  }

 private:
  std::map<int, Clock::time_point> until_;
};

}  // namespace bluefog::bfrun
