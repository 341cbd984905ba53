#include "optimizers/wrapper/step_meeting.hpp"

#include <algorithm>

#include "bluefog_cpp/context/context_core.hpp"

namespace bluefog::optimizers {

void StepMeeting::call_if_needed(Context& context, std::int64_t steps) {
  constexpr std::chrono::milliseconds kBetweenLooks(200);
  constexpr int kMostSteps = 8;
  Engine& engine = context.core().engine();
  Appointment& appointment = engine.appointment();
  if (context.rank() != 0 || appointment.step()) {
    return;
  }
  const bool is_departure = appointment.is_wished();
  const auto now = std::chrono::steady_clock::now();
  if (!is_departure && now - last_look_ < kBetweenLooks) {
    return;
  }
  last_look_ = now;
  if (is_departure || context.has_applicants()) {
    // Ranks that average with neighbours may be as many steps ahead as the graph is wide.
    const std::int64_t step = steps + 1 + std::min(context.size(), kMostSteps);
    engine.run_exclusively(
        [&] { appointment.make(static_cast<std::uint64_t>(step), is_departure); });
  }
}

bool StepMeeting::is_due(Context& context, std::int64_t steps) {
  Engine& engine = context.core().engine();
  (void)engine.is_revoked();  // in a step without a call nothing else looks at what the others say
  const auto step = engine.appointment().step();
  return step && static_cast<std::uint64_t>(steps) >= *step;
}

bool StepMeeting::is_departure(Context& context) {
  return context.core().engine().appointment().is_departure();
}

void StepMeeting::ask(Context& context) {
  Engine& engine = context.core().engine();
  engine.run_exclusively([&engine] { engine.appointment().wish(); });
}

}  // namespace bluefog::optimizers
