#pragma once

#include "bluefog_cpp/context.hpp"
#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// For what an optimizer communicates: in memory that the ranks of this host share, where sums take
/// no copies, unless `BLUEFOG_SHARED_BUCKETS` is 0; torch's own on devices, and where such memory is
/// short, which is logged.
[[nodiscard]] MakeZeros bucket_memory(const Context& context);

}  // namespace bluefog::optimizers
