#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/options.hpp"

namespace bluefog::ops {

/// Gives the memory for a result whose size is only known once the call is under way: called once
/// with every rank's number of elements, by rank; returns room for their sum, of the input's dtype.
using AllocateGathered = std::function<BufferView(const std::vector<std::int64_t>& counts)>;

/// The ranks' inputs one after the other, by rank. Counts may differ, the dtype not.
/// `allocate` is called before `Work::wait` returns, from the caller's or the progress thread,
/// while other calls of this context stand still: it must not call into the context, nor take a
/// lock that a thread holds while it calls into the context. An exception from it ends the call
/// here, and the other ranks' calls by PeerFailure. The input may lie in the result's memory; on a
/// device only in its own place there. The result is on the input's device, and `Work::wait` orders
/// it on the input's stream.
/// Buffers are where `allreduce` takes them.
/// Cost per rank: n−1 messages of 8 bytes, then n−1 of its own input, copied once inside a host.
/// @throws InvalidArgument for a null or negative input, or room of another size than asked for.
[[nodiscard]] Work allgather_nonblocking(Context& context, ConstBufferView input,
                                         AllocateGathered allocate, const OpOptions& options = {});
/// Waits for `allgather_nonblocking`, with its errors and those of `Work::wait`.
void allgather(Context& context, ConstBufferView input, AllocateGathered allocate,
               const OpOptions& options = {});

}  // namespace bluefog::ops
