#pragma once

#include <array>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// The streams that a call's input and output are ordered on; they may be the same.
using DeviceStreams = std::array<gpu::StreamHandle, 2>;

/// The place of a call on a device among what its caller's streams do: after what is on them when
/// it is made, or when somebody waits for it, and before what comes once it has been waited for.
class CallStreams {
 public:
  /// @param channel outlives the object. @param capture that both streams are in.
  CallStreams(DeviceChannel& channel, const DeviceStreams& streams,
              std::optional<std::uint64_t> capture)
      : channel_(channel), streams_(streams), capture_(capture) {}

  /// Notes what is on the streams by now, at the call's beginning. The device has been entered.
  void note_callers() { record(ready_, {}); }
  /// Orders the channel's stream behind what `note_callers` has noted.
  void follow_callers() { wait_for(ready_); }

  /// Notes what is on the streams, and on that one, when somebody first waits. From any thread.
  void note_waiter(WaitingStream waiting);
  /// Orders the channel's stream behind what `note_waiter` has noted.
  void follow_waiter() { wait_for(ready_at_wait_); }
  /// Orders it behind what is on the streams, and on that one, by now, in a capture.
  void follow_waiter_now(WaitingStream waiting);

  /// Orders what comes later on the streams, and on that one, behind `done`. From any thread.
  void order(WaitingStream waiting, gpu::EventHandle done);

  /// Whether the streams, and that one, capture as they did when the call was made.
  /// @return what was expected and found otherwise: they cannot be ordered then.
  [[nodiscard]] std::string_view capture_problem(WaitingStream waiting);

 private:
  using ReadyEvents = boost::container::small_vector<gpu::Event, 2>;
  using SomeStreams = boost::container::small_vector<gpu::StreamHandle, 3>;

  /// The call's own streams, each once, and the stream of somebody who waits, if it is another one.
  [[nodiscard]] SomeStreams with(WaitingStream waiting) const;
  /// Makes `ready` happen when what is on the streams by now is done.
  void record(ReadyEvents& ready, WaitingStream waiting);
  void wait_for(const ReadyEvents& ready);

  DeviceChannel& channel_;
  DeviceStreams streams_;
  std::optional<std::uint64_t> capture_;
  ReadyEvents ready_;
  std::once_flag has_waiter_;
  ReadyEvents ready_at_wait_;
};

}  // namespace bluefog
