#include "pipeline/runtime/step_clock.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>

namespace bluefog::pipeline {
namespace {

double seconds_between(Timeline::Clock::time_point from, Timeline::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

StepClock::Part::Part(TraceRow& row, double& seconds, std::string_view name, int micro_batch)
    : row_(row), seconds_(seconds), begin_(Timeline::Clock::now()) {
  if (row_.is_open()) {
    row_.begin(micro_batch < 0 ? std::string(name) : fmt::format("{} {}", name, micro_batch));
  }
}

StepClock::Part::~Part() {
  const auto now = Timeline::Clock::now();
  seconds_ += seconds_between(begin_, now);
  row_.end(now);
}

StepClock::StepClock(Timeline* timeline, std::string_view call, StepTimes& times,
                     std::optional<Timeline::Clock::time_point> loading_began)
    : times_(times), begin_(Timeline::Clock::now()), row_(timeline, "pipeline") {
  if (loading_began && *loading_began < begin_) {
    times_.loading += seconds_between(*loading_began, begin_);
    row_.add("LOAD", *loading_began, begin_);
  }
  row_.begin(call);
}

StepClock::~StepClock() {
  const auto now = Timeline::Clock::now();
  times_.total += seconds_between(begin_, now);
  row_.end(now);
}

StepClock::Part StepClock::part(double StepTimes::*use, std::string_view name, int micro_batch) {
  return {row_, times_.*use, name, micro_batch};
}

void StepClock::add_averaging(Timeline::Clock::time_point begin) {
  times_.averaging_whole += seconds_between(begin, Timeline::Clock::now());
}

}  // namespace bluefog::pipeline
