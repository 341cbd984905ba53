#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "optimizers/wrapper/step_counts.hpp"

namespace bluefog::optimizers {

/// The step after which the ranks of a context form their group anew, because a process waits to
/// join or one of them leaves. Rank 0 names it to all (`Appointment`).
class StepMeeting {
 public:
  /// At the end of a step. On rank 0: names one to come, where there is a reason and none is named
  /// yet: some ahead, and with local steps in between the end of a round, unless that is far away,
  /// lest ranks that are ahead wait in it for those that meet. Looks for processes that wait five
  /// times a second.
  void call_if_needed(Context& context, const StepCounts& counts, bool averages_over_all);
  /// Whether this is the step. Hears what the others say.
  /// @param steps nothing: any step is, since ranks make as many as they like.
  [[nodiscard]] static bool is_due(Context& context, std::optional<std::int64_t> steps);
  /// Whether one of the ranks leaves there.
  [[nodiscard]] static bool is_departure(Context& context);
  /// Has rank 0 name one, since this rank wants to leave.
  static void ask(Context& context);
  /// Has all ranks know that this rank's program cannot go on (`GivenUp`).
  static void give_up(Context& context, std::string_view why);

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::int64_t step_to_come(int size, const StepCounts& counts,
                                          bool averages_over_all) const;

  static constexpr std::chrono::milliseconds kBetweenLooks{200};
  static constexpr std::chrono::milliseconds kLongestBetweenLooks{30'000};

  Clock::time_point last_look_{};
  /// Longer where the same ones wait on: ranks that do not come to meetings keep them out.
  std::chrono::milliseconds between_looks_ = kBetweenLooks;
  Clock::time_point last_step_ = Clock::now();
  Clock::duration step_{};  ///< what the last one took, waits included
};

}  // namespace bluefog::optimizers
