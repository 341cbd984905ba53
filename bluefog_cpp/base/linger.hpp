#pragma once

#include <algorithm>
#include <chrono>

/// How long a rank that leaves waits for the others, by what they may still need of it.
namespace bluefog::linger {

/// For calls under way on its device: other ranks' devices may wait for their part.
inline constexpr std::chrono::seconds kDeviceCalls{10};
/// For calls of its windows that nobody waits for, which may stand before another rank's mutex.
inline constexpr std::chrono::seconds kWindowCalls{2};
/// For the end of a link between devices, which graphs and other ranks' links may hold up.
inline constexpr std::chrono::seconds kDeviceLink{2};
/// For other ranks to let go of its device's memory, which stays until the process's end otherwise.
inline constexpr std::chrono::seconds kDeviceMemory{2};
/// For work of a link that was aborted, which ends soon or never.
inline constexpr std::chrono::seconds kAbortedWork{1};
/// For the last bytes of a rank that has left, and for peers to take this rank's.
inline constexpr std::chrono::seconds kLastBytes{1};

/// `longest`, or `timeout`, a `BLUEFOG_TIMEOUT`, where it is set and shorter.
[[nodiscard]] constexpr std::chrono::nanoseconds within(std::chrono::nanoseconds longest,
                                                        std::chrono::nanoseconds timeout) {
  return timeout.count() == 0 ? longest : std::min(timeout, longest);
}

}  // namespace bluefog::linger
