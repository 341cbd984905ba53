#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "optimizers/buckets/windows/bucket_windows.hpp"
#include "optimizers/late_rank.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::optimizers {

/// The rules for neighbours whose values of a round have not come.
struct LateRules {
  /// A round waits so long for all of them together.
  std::chrono::nanoseconds grace{};
  /// The greatest age in rounds of a value that is averaged without waiting for the next.
  std::int64_t staleness_bound = 0;
  /// A round averages without a neighbour whose value is older than the bound, and its weight goes
  /// to the rank's own value. Otherwise it waits for that one; with a bound of 0 it does not, and
  /// averages what there is.
  bool leaves_out = false;

  /// Whether there is anything to wait for or to leave out.
  [[nodiscard]] bool are_any() const noexcept {
    return grace.count() > 0 || staleness_bound > 0 || leaves_out;
  }
};

/// Waits for the neighbours of rounds over windows, by the rules, and counts who was late.
///
/// Ranks number their rounds by a logical clock: a put has the number after the rank's last one, or
/// the highest that has come in where that is higher. So a rank that was stopped, or is slower, has
/// a current number again with its next put, and the age of a value is how many rounds the one that
/// reads it has made since.
class LateSources {
 public:
  /// @param windows outlive this object; the last one's puts come last in each round.
  LateSources(Context& context, BucketWindows& windows, const LateRules& rules);

  /// The number of the round that begins, which its puts carry.
  [[nodiscard]] std::int64_t begin_round();
  /// Waits for the plan's sources, after this rank's puts. @return the plan to average with, until
  /// the next call. A source that was late in the round before is not given time again before it
  /// has put a value.
  /// @throws TimeoutError naming a source that stays older than the bound.
  [[nodiscard]] const NeighborPlan& wait(const NeighborPlan& plan);

  /// The ranks that were late at least once, rising.
  [[nodiscard]] std::vector<LateRank> ranks() const;

 private:
  struct Source {
    LateRank counts{};
    /// The stamp that it was late with; -1 where it was in time.
    std::int64_t late_stamp = -1;
  };

  [[nodiscard]] std::int64_t age_of(int rank) const;
  void give_time(const NeighborPlan& plan);
  /// @return whether the round averages without it.
  bool note_late(int rank);

  Context& context_;
  BucketWindows& windows_;
  LateRules rules_;
  std::int64_t clock_ = 0;
  std::vector<Source> sources_;
  NeighborPlan heard_;
};

}  // namespace bluefog::optimizers
