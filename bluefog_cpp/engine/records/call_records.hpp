#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "bluefog_cpp/base/trace/trace.hpp"
#include "bluefog_cpp/engine/call_queue.hpp"
#include "bluefog_cpp/engine/flight_recorder.hpp"
#include "bluefog_cpp/engine/operation.hpp"

namespace bluefog {

/// Writes the calls of one context to the timeline and the flight record, where these are kept.
///
/// Used under the engine's mutex.
class CallRecords {
 public:
  /// @param timeline null when none is written.
  /// @param recorder null when no flight record is kept.
  /// @param context this context's number in the flight record.
  CallRecords(std::shared_ptr<Timeline> timeline, std::shared_ptr<FlightRecorder> recorder,
              int context)
      : timeline_(std::move(timeline)), recorder_(std::move(recorder)), context_(context) {}

  void begin(Operation& operation) const {
    if (timeline_ || recorder_) [[unlikely]] {
      write_begin(operation);
    }
  }
  void end(Operation& operation, FlightRecorder::State state) const {
    CallState& call = CallState::of(operation);
    call.row.close();
    if (recorder_) [[unlikely]] {
      recorder_->set_state(call.ticket, state);
    }
  }

  /// Writes the flight record, with whom the calls of `queue` wait for.
  void write_flight_record(const CallQueue& queue, std::string_view reason) const;

 private:
  void write_begin(Operation& operation) const;

  std::shared_ptr<Timeline> timeline_;
  std::shared_ptr<FlightRecorder> recorder_;
  int context_;
};

}  // namespace bluefog
