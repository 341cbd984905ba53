#pragma once

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/transport/message.hpp"
#include "ops/allreduce.hpp"
#include "ops/sums/fold.hpp"

namespace bluefog::ops {

[[nodiscard]] Fold fold_of(Reduction reduction) noexcept;

/// @throws InvalidArgument for an unknown reduction or one that the buffer's dtype has not,
///   UnsupportedError for others than sums and averages off the CPU.
void check_reduction(const Context& context, OpKind kind, Reduction reduction,
                     const ConstBufferView& buffer);

}  // namespace bluefog::ops
