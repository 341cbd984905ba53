#pragma once

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog::ops {

/// Returns when every rank has entered it; knows nothing of devices. Cost: ⌈log₂ n⌉ messages.
[[nodiscard]] Work barrier_nonblocking(Context& context);
/// Waits for `barrier_nonblocking`, with its errors and those of `Work::wait`.
void barrier(Context& context);

}  // namespace bluefog::ops
