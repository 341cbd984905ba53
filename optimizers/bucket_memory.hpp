#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "bluefog_cpp/transport/context.hpp"

namespace bluefog::optimizers {

/// Flat tensors of `count` zeros.
using MakeZeros =
    std::function<at::Tensor(std::int64_t count, const at::TensorOptions& options)>;

/// For what an optimizer communicates: in memory that the ranks of this host share, where sums take
/// no copies, unless `BLUEFOG_SHARED_BUCKETS` is 0; torch's own on devices, and where such memory is
/// short, which is logged.
[[nodiscard]] MakeZeros bucket_memory(const Context& context);

}  // namespace bluefog::optimizers
