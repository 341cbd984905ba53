#pragma once

#include <memory>
#include <span>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "ops/neighbor_allreduce.hpp"

namespace bluefog::ops {

/// `neighbor_allreduce`, in place, of many buffers at once:
///
///     x_i[k] ← w_ii x_i[k] + Σ_j w_ij · d_j(i) · x_j[k]    for each buffer k
///
/// with the same bits as a call for each of them, and one call in the order of calls. Buffers of a
/// dtype are taken as if they lay one after the other, in pieces of 512 KiB (longer ones of more than
/// 10 GiB): many short ones take one exchange. A piece whose buffers lie apart is put together in
/// memory that the ranks of a host share, and its results are copied back; buffers that do lie one
/// after the other are averaged where they are.
///
/// @param buffers each as in `neighbor_allreduce`, on the CPU, and apart from the others; their
///   number, counts and dtypes, in this order, the same on all ranks, which is compared. None is a
///   call too.
/// @param plan, options as in `neighbor_allreduce`; a step that is compared is so once.
/// Every rank calls it, in the same order as its other calls. It blocks until all results are in
/// memory.
/// Cost per rank: that of `neighbor_allreduce` of all bytes, two copies of what lies apart, and
/// shared memory for a piece, kept for the next call.
/// @throws InvalidArgument as `neighbor_allreduce`, and for buffers that overlap; UnsupportedError
///   for one off the CPU; MismatchError, PeerFailure, TimeoutError, TransportError, which may leave
///   some buffers averaged. A rank whose list differs from that of one it hears changes none.
/// Source: Horovod's grouped all-reduce.
void neighbor_allreduce_multi(Context& context, std::span<const BufferView> buffers,
                              const std::shared_ptr<const NeighborPlan>& plan,
                              const NeighborAllreduceOptions& options = {});

}  // namespace bluefog::ops
