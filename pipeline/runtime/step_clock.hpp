#pragma once

#include <optional>
#include <string_view>

#include "bluefog_cpp/base/trace/trace.hpp"
#include "pipeline/step_times.hpp"

namespace bluefog::pipeline {

/// The clock of a call: adds up a rank's time by its uses, and shows it in the timeline, on the row
/// "pipeline".
class StepClock {
 public:
  /// A part of the call, as long as this lasts.
  class Part {
   public:
    Part(TraceRow& row, double& seconds, std::string_view name, int micro_batch);
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part();

   private:
    TraceRow& row_;
    double& seconds_;
    Timeline::Clock::time_point begin_;
  };

  /// The call begins. @param timeline may be null. @param times outlive this object.
  /// @param loading_began when the caller began to load the call's rows.
  StepClock(Timeline* timeline, std::string_view call, StepTimes& times,
            std::optional<Timeline::Clock::time_point> loading_began = {});
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;
  /// The call ends.
  ~StepClock();

  /// @param use of the time. @param micro_batch becomes a part of the name, where it is not negative.
  [[nodiscard]] Part part(double StepTimes::*use, std::string_view name, int micro_batch = -1);
  /// The time from `begin` is that of the whole average, of which a `Part` has what was exposed.
  void add_averaging(Timeline::Clock::time_point begin);

 private:
  StepTimes& times_;
  Timeline::Clock::time_point begin_;
  TraceRow row_;
};

}  // namespace bluefog::pipeline
