#pragma once

#include <functional>
#include <memory>

namespace bluefog {

/// Calls `leave` when this process exits, in the order of registration, as long as the caller keeps
/// the result: others then hear that this rank has left, and not that it has died. `leave` must not
/// throw. Not called in a fork of the process.
[[nodiscard]] std::shared_ptr<void> at_exit(std::function<void()> leave);

}  // namespace bluefog
