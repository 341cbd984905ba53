#include "bluefog_cpp/engine/records/call_records.hpp"

namespace bluefog {
namespace {

/// Row of the timeline: the tensor's name, or else the operation's.
std::string_view lane_of(const Operation& operation) {
  const Envelope& envelope = operation.envelope();
  return envelope.name.empty() ? name_of(envelope.kind) : envelope.name;
}

}  // namespace

void CallRecords::write_begin(Operation& operation) const {
  CallState& call = CallState::of(operation);
  if (timeline_) {
    call.row = TraceRow(timeline_.get(), lane_of(operation));
    call.row.begin(activity_name(name_of(operation.envelope().kind)));
  }
  if (recorder_) {
    call.ticket = recorder_->begin(context_, call.index, operation.partner(), operation.envelope());
  }
}

void CallRecords::write_flight_record(const CallQueue& queue, std::string_view reason) const {
  if (!recorder_) {
    return;
  }
  for (const QueuedCall& queued : queue) {
    const CallState& call = queued.state();
    if (call.is_running()) {
      recorder_->note_wait(call.ticket, call.exchange.awaited_sources(),
                           call.exchange.awaited_readers());
    }
  }
  recorder_->write(reason);
}

}  // namespace bluefog
