#pragma once

#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/allreduce.hpp"
#include "ops/options.hpp"

/// @file
/// Reductions whose result one rank gets, or each rank a part of. Values are formed as in
/// `allreduce`, by rising rank. Buffers on the CPU; every rank makes the call, with the same
/// counts, dtype and reduction, in the same order as its other calls.
namespace bluefog::ops {

/// The choices of `reduce_nonblocking` and `reduce_scatter_nonblocking`.
struct ReduceOptions {
  std::string name{};                    ///< as `OpOptions::name`
  Reduction reduction = Reduction::Sum;  ///< what an element becomes; the same on all ranks
};

/// The root's buffer becomes the reduction over all ranks; the others' stay as they are.
/// Cost per rank: its buffer once, to the ranks that own shards of the sum (to the root alone for
/// two ranks and up to 4 KiB), and its shard to the root.
/// @throws InvalidArgument for an unsupported dtype or reduction, a null or negative buffer or a
///   root that is no rank; UnsupportedError off the CPU.
[[nodiscard]] Work reduce_nonblocking(Context& context, BufferView buffer, int root,
                                      const ReduceOptions& options = {});

/// This rank's output becomes the reduction of what all ranks have for it: output_i = Σ_j
/// inputs_j[i].
/// @param inputs one for each rank, all ranks' i-th of the size of rank i's output, which may be
///   the own one and lies apart from the others; sizes of different outputs may differ.
/// Cost per rank: n−1 messages, of the inputs for the others.
/// @throws InvalidArgument for an unsupported dtype or reduction, null or negative buffers, another
///   number of inputs than ranks, an output that overlaps an input for another rank;
///   UnsupportedError off the CPU.
[[nodiscard]] Work reduce_scatter_nonblocking(Context& context, std::vector<ConstBufferView> inputs,
                                              BufferView output, const ReduceOptions& options = {});

}  // namespace bluefog::ops
