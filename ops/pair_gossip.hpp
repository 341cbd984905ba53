#pragma once

#include <string>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog::ops {

/// The choices of `pair_gossip`. The weights are finite, of any sign.
struct PairGossipOptions {
  std::string name{};        ///< as `OpOptions::name`
  double self_weight = 0.5;  ///< the factor of this rank's value
  double pair_weight = 0.5;  ///< the factor of the other rank's value
};

/// Weighted average with one other rank, in place:
///
///     x_i ← self_weight · x_i + pair_weight · x_target
///
/// The sum is formed as in `neighbor_allreduce`: with weights that sum to 1 equal values stay
/// exactly that value. With weights of ½ both ranks get the same bits, and their sum is conserved
/// but for rounding.
///
/// @param buffer `count` elements of float16, bfloat16, float32 or float64, on the CPU or on the
///   device of the context (docs/gpu.md), the same count and dtype on both ranks; read and written
///   until the work is complete.
/// @param target the other rank, which calls it with this one as its target. The weights are each
///   rank's own.
/// Only the two ranks call it, in the same order as their other calls with each other; it is in no
/// order with calls of all ranks, or of other pairs.
/// Cost per rank: one message of `count` elements, copied out whole at the start.
/// @throws InvalidArgument for an unsupported dtype, a null or negative buffer, a target that is
///   no other rank, weights that are not finite. `Work::wait` throws MismatchError, PeerFailure,
///   and TimeoutError where the target does not come.
/// Source: BlueFog's `pair_gossip_nonblocking`; AD-PSGD, arXiv 1710.06952.
[[nodiscard]] Work pair_gossip_nonblocking(Context& context, BufferView buffer, int target,
                                           const PairGossipOptions& options = {});

/// The form out of place: `output` gets the result, `input` is left as it is. The two have the same
/// count and dtype and are the same memory or apart.
[[nodiscard]] Work pair_gossip_nonblocking(Context& context, ConstBufferView input,
                                           BufferView output, int target,
                                           const PairGossipOptions& options = {});

/// @name Blocking forms
/// @{

/// They wait for `pair_gossip_nonblocking`, with its errors: return when the result is in memory.
void pair_gossip(Context& context, BufferView buffer, int target,
                 const PairGossipOptions& options = {});
void pair_gossip(Context& context, ConstBufferView input, BufferView output, int target,
                 const PairGossipOptions& options = {});
/// @}

}  // namespace bluefog::ops
