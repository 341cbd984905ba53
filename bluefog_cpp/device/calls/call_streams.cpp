#include "bluefog_cpp/device/calls/call_streams.hpp"

#include <algorithm>

namespace bluefog {

CallStreams::SomeStreams CallStreams::with(WaitingStream waiting) const {
  SomeStreams streams{streams_[0]};
  const auto add = [&streams](gpu::StreamHandle stream) {
    if (std::ranges::find(streams, stream) == streams.end()) {
      streams.push_back(stream);
    }
  };
  add(streams_[1]);
  if (waiting) {
    add(*waiting);
  }
  return streams;
}

void CallStreams::record(ReadyEvents& ready, WaitingStream waiting) {
  for (const gpu::StreamHandle stream : with(waiting)) {
    channel_.cuda().record(ready.emplace_back(channel_.take_event()).get(), stream);
  }
}

void CallStreams::wait_for(const ReadyEvents& ready) {
  for (const gpu::Event& event : ready) {
    channel_.cuda().wait(channel_.stream(), event.get());
  }
}

void CallStreams::note_waiter(WaitingStream waiting) {
  std::call_once(has_waiter_, [this, waiting] {
    const gpu::DeviceScope scope = channel_.enter();
    record(ready_at_wait_, waiting);
  });
}

void CallStreams::follow_waiter_now(WaitingStream waiting) {
  record(ready_at_wait_, waiting);
  wait_for(ready_at_wait_);
}

void CallStreams::order(WaitingStream waiting, gpu::EventHandle done) {
  const gpu::DeviceScope scope = channel_.enter();
  for (const gpu::StreamHandle stream : with(waiting)) {
    channel_.cuda().wait(stream, done);
  }
}

std::string_view CallStreams::capture_problem(WaitingStream waiting) {
  const gpu::DeviceScope scope = channel_.enter();
  for (const gpu::StreamHandle stream : with(waiting)) {
    const auto [status, id] = channel_.cuda().capture_of(stream);
    if (!capture_ && status != gpu::CaptureStatus::None) {
      return "expected the wait for it before the capture of a CUDA graph begins on its stream, or "
             "after its end, found it in the capture";
    }
    if (capture_ && (status != gpu::CaptureStatus::Active || id != *capture_)) {
      return "expected the wait for it in the capture that it is part of, found it on a stream "
             "outside of that: its results come with launches of the graph, in the order of the "
             "stream";
    }
  }
  return {};
}

}  // namespace bluefog
