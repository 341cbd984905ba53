#pragma once

#include "bluefog_cpp/context.hpp"
#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// The memory of buffers that an optimizer communicates: shared by the ranks of this host, so that
/// sums take no copies, unless `BLUEFOG_SHARED_BUCKETS` is 0. Torch's own memory on devices, and if
/// shared memory is short, which is logged.
[[nodiscard]] MakeZeros bucket_memory(const Context& context);

}  // namespace bluefog::optimizers
