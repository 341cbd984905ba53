#include "optimizers/wrapper/step_meeting.hpp"

#include <algorithm>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"

namespace bluefog::optimizers {

std::int64_t StepMeeting::step_to_come(int size, const StepCounts& counts,
                                       bool averages_over_all) const {
  constexpr int kMostRounds = 8;
  constexpr std::chrono::seconds kFarAway(10);
  // Ranks that average with neighbours may be as many rounds ahead as the graph is wide.
  const std::int64_t ahead = 1 + std::min(size, kMostRounds);
  const std::int64_t length = counts.steps_per_round();
  const std::int64_t rounds = counts.steps() / length + (averages_over_all ? 1 : ahead);
  const auto until_then =
      std::chrono::duration<double>(step_) * static_cast<double>(rounds * length - counts.steps());
  const bool is_far = until_then > kFarAway;
  return length == 1 || is_far ? counts.steps() + ahead : rounds * length;
}

void StepMeeting::call_if_needed(Context& context, const StepCounts& counts,
                                 bool averages_over_all) {
  const auto now = Clock::now();
  step_ = now - std::exchange(last_step_, now);
  Engine& engine = context.core().engine();
  Appointment& appointment = engine.step_news().appointment;
  if (context.rank() != 0 || appointment.step()) {
    return;
  }
  const bool is_departure = appointment.is_wished();
  if (!is_departure && now - last_look_ < between_looks_) {
    return;
  }
  last_look_ = now;
  const bool has_applicants = !is_departure && context.has_applicants();
  between_looks_ =
      has_applicants ? std::min(2 * between_looks_, kLongestBetweenLooks) : kBetweenLooks;
  if (is_departure || has_applicants) {
    const std::int64_t step = step_to_come(context.size(), counts, averages_over_all);
    engine.run_exclusively(
        [&] { appointment.make(static_cast<std::uint64_t>(step), is_departure); });
  }
}

bool StepMeeting::is_due(Context& context, std::optional<std::int64_t> steps) {
  Engine& engine = context.core().engine();
  (void)engine.is_revoked();  // in a step without a call nothing else looks at what the others say
  const auto step = engine.step_news().appointment.step();
  return step && (!steps || static_cast<std::uint64_t>(*steps) >= *step);
}

bool StepMeeting::is_departure(Context& context) {
  return context.core().engine().step_news().appointment.is_departure();
}

void StepMeeting::ask(Context& context) {
  Engine& engine = context.core().engine();
  engine.run_exclusively([&engine] { engine.step_news().appointment.wish(); });
}

void StepMeeting::give_up(Context& context, std::string_view why) {
  Engine& engine = context.core().engine();
  engine.run_exclusively([&engine, why] { engine.step_news().given_up.tell(why); });
}

}  // namespace bluefog::optimizers
