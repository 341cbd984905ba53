#pragma once

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/options.hpp"

namespace bluefog::ops {

/// Every rank's buffer becomes `root`'s. Any dtype; same count, dtype and root on all ranks.
/// Buffers are where `allreduce` takes them.
/// Cost: along a binomial tree from the root to one rank of each other host, each of which passes
/// it on when it has all of it; each of them copies once into shared memory for its own host.
/// @throws InvalidArgument if `root` is not a rank; on every rank that passed it.
[[nodiscard]] Work broadcast_nonblocking(Context& context, BufferView buffer, int root,
                                         const OpOptions& options = {});
/// Waits for `broadcast_nonblocking`, with its errors and those of `Work::wait`.
void broadcast(Context& context, BufferView buffer, int root, const OpOptions& options = {});

}  // namespace bluefog::ops
