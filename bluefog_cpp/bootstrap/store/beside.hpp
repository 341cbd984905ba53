#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "bluefog_cpp/deadline.hpp"

namespace bluefog {

/// Runs `body` in a thread of its own and waits for its end, so that one which is stuck in the code
/// of others holds up the caller no longer than `deadline` and 2 s. `body` looks at its argument
/// now and then, and ends when it is set. Rethrows what `body` throws. The thread takes no signals.
/// @param check called about every 50 ms, unless empty; its exception ends the wait.
/// @param what for the message: "bootstrap barrier on rank 1, the store at …".
/// @throws TimeoutError where `body` is stuck: it is left to itself, with all that it holds.
void run_beside(std::function<void(const std::atomic<bool>&)> body,
                const std::function<void()>& check, Deadline deadline, const std::string& what);

}  // namespace bluefog
