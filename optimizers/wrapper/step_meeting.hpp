#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "bluefog_cpp/context.hpp"

namespace bluefog::optimizers {

/// The step after which the ranks of a context form their group anew, because a process waits to
/// join or one of them leaves. Rank 0 names it to all (`Appointment`).
class StepMeeting {
 public:
  /// On rank 0: names a step, some after `steps`, where there is a reason and none is named yet.
  /// Looks for processes that wait five times a second.
  void call_if_needed(Context& context, std::int64_t steps);
  /// Whether this is the step. Hears what the others say.
  [[nodiscard]] static bool is_due(Context& context, std::int64_t steps);
  /// Whether one of the ranks leaves there.
  [[nodiscard]] static bool is_departure(Context& context);
  /// Has rank 0 name one, since this rank wants to leave.
  static void ask(Context& context);

 private:
  std::chrono::steady_clock::time_point last_look_{};
};

}  // namespace bluefog::optimizers
