#pragma once

#include <functional>
#include <memory>

namespace bluefog {

/// Calls `leave` when this process exits, in the order of registration, as long as the caller keeps
/// the result: others then hear that this rank has left, and not that it has died. `leave` must not
/// throw. Not called in a fork of the process.
[[nodiscard]] std::shared_ptr<void> at_exit(std::function<void()> leave);

/// Calls them now, for a program whose means end before the process does: an interpreter's, for
/// one.
void run_exit_hooks();

}  // namespace bluefog
