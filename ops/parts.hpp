#pragma once

#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/options.hpp"

/// @file
/// Collectives whose ranks give and take parts of sizes that they know beforehand. Every part goes
/// straight to its place, in one round of messages.
///
/// Any dtype, the same on all ranks; buffers on the CPU. Inputs are read, and outputs written,
/// until the work is complete; the two may not overlap but as said. Every rank makes each call, in
/// the same order as its other calls. What a rank gives another has to have the size that the other
/// expects: else both get MismatchError.
/// All throw InvalidArgument for null or negative buffers, lists of another length than there are
/// ranks, parts of several dtypes or of another size than this rank's own, a root that is no rank;
/// UnsupportedError for buffers off the CPU. `Work::wait` throws MismatchError, PeerFailure,
/// TimeoutError.
namespace bluefog::ops {

/// Every rank's input goes to every rank: `outputs[j]` becomes rank j's.
/// @param outputs one for each rank. The input may lie in the own one.
/// Cost per rank: n−1 messages of its input, which is copied once inside a host.
[[nodiscard]] Work allgather_parts_nonblocking(Context& context, ConstBufferView input,
                                               std::vector<BufferView> outputs,
                                               const OpOptions& options = {});

/// Every rank's input goes to the root, whose `outputs[j]` becomes rank j's.
/// @param outputs of the root one for each rank, of the others none.
/// Cost per rank: one message of its input.
[[nodiscard]] Work gather_nonblocking(Context& context, ConstBufferView input,
                                      std::vector<BufferView> outputs, int root,
                                      const OpOptions& options = {});

/// The root's `inputs[j]` goes to rank j, whose output it becomes.
/// @param inputs of the root one for each rank, of the others none.
/// Cost: one message to each rank but the root.
[[nodiscard]] Work scatter_nonblocking(Context& context, std::vector<ConstBufferView> inputs,
                                       BufferView output, int root, const OpOptions& options = {});

/// This rank's `inputs[j]` goes to rank j, whose `outputs[i]` becomes what rank i has for it.
/// @param inputs and `outputs`: one for each rank, of any sizes.
/// Cost per rank: n−1 messages.
[[nodiscard]] Work alltoall_nonblocking(Context& context, std::vector<ConstBufferView> inputs,
                                        std::vector<BufferView> outputs,
                                        const OpOptions& options = {});

}  // namespace bluefog::ops
