#pragma once

#include <cstdint>
#include <string>

#include "bluefog_cpp/context.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// Compares the rounds of a schedule whose period is too long to be compared at once: as many as
/// ranks have compared in the beginning (`compared_rounds`), before the first of them is made.
///
/// Cost: one all-gather of 16 bytes in so many rounds, and these rounds' matrices.
class LaterRounds {
 public:
  /// @param context outlives this object.
  LaterRounds(Context& context, Schedule schedule);

  /// Whether the round belongs to others than those compared last: a call of all ranks comes then.
  [[nodiscard]] bool is_due(std::int64_t round) const;
  /// Compares the round and those that come with it, if it is due. They count as compared from now
  /// on, whatever comes of it.
  /// @throws MismatchError naming round, ranks and rows where ranks have others, again in each of
  ///   these rounds; what the schedule throws on a rank that cannot make one, there, and
  ///   PeerFailure on the others.
  void compare(std::int64_t round);
  /// Counts those of a round whose calls are refused as compared.
  void pass_over(std::int64_t round) { last_ = place_of(round); }

 private:
  [[nodiscard]] std::int64_t place_of(std::int64_t round) const;

  Context& context_;
  Schedule schedule_;
  std::int64_t rounds_at_once_;
  /// The place of those that were compared last: the first ones in the beginning.
  std::int64_t last_ = 0;
  /// The way in which they differ; empty if they do not.
  std::string mismatch_;
};

}  // namespace bluefog::optimizers
