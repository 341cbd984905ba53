#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

namespace bluefog::bfrun {

/// Watchers on other hosts that are gone, without a report on their ranks so far: it may be on its way
/// for as long as a host may be silent.
class FarEnds {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param silence 0: for ever.
  explicit FarEnds(std::chrono::seconds silence) : silence_(silence) {}

  void take(int rank, Clock::time_point now) { ends_.emplace(rank, now); }
  void forget(int rank) { ends_.erase(rank); }
  /// The time at which the first of them has been silent for too long.
  [[nodiscard]] std::optional<Clock::time_point> due() const {
    if (ends_.empty() || silence_ <= std::chrono::seconds(0)) {
      return std::nullopt;
    }
    const auto first = std::ranges::min_element(
        ends_, [](const auto& one, const auto& other) { return one.second < other.second; });
    return first->second + silence_;
  }
  /// The ranks for which that time has passed.
  [[nodiscard]] std::vector<int> overdue(Clock::time_point now) const {
    std::vector<int> ranks;
    for (const auto& [rank, since] : ends_) {
      if (silence_ > std::chrono::seconds(0) && now >= since + silence_) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

 private:
  std::chrono::seconds silence_;
  std::map<int, Clock::time_point> ends_;
};

}  // namespace bluefog::bfrun
