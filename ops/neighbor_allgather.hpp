#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::ops {

/// The choices of `neighbor_allgather`.
struct NeighborAllgatherOptions {
  std::string name{};                    ///< as `OpOptions::name`
  PlanCheck check = PlanCheck::Trusted;  ///< the same on all ranks
  /// The ranks whose inputs the result holds, in its order: the sources of the plan, and this rank
  /// itself if its own input is to be among them. Empty: the sources by rising rank.
  std::vector<int> order{};
};

/// Gathers the inputs of the ranks that this one hears, one after the other, by rising rank or in
/// `order`. The weights of the plan have no effect.
///
/// @param input `count` elements of any dtype, on the CPU or on the device of the context
///   (docs/gpu.md). Counts may differ between ranks, the dtype not. It may not lie in the result's
///   memory.
/// @param allocate as for `allgather`; called with the counts of the result's parts, in its order.
/// @param plan this rank's part; all ranks' parts agree. Copied.
/// Every rank calls it, in the same order as its other calls.
/// Cost per rank: to each destination one message of 8 bytes and one of its input, copied once
/// inside a host.
/// @throws InvalidArgument for a null or negative input, room of another size than asked for, a
///   plan of another rank or size, or an order that does not name each source once. `Work::wait`
///   throws MismatchError, PeerFailure, TimeoutError.
/// Source: BlueFog's `neighbor_allgather`.
[[nodiscard]] Work neighbor_allgather_nonblocking(Context& context, ConstBufferView input,
                                                  AllocateGathered allocate,
                                                  const std::shared_ptr<const NeighborPlan>& plan,
                                                  const NeighborAllgatherOptions& options = {});
/// Waits for `neighbor_allgather_nonblocking`, with its errors and those of `Work::wait`.
void neighbor_allgather(Context& context, ConstBufferView input, AllocateGathered allocate,
                        const std::shared_ptr<const NeighborPlan>& plan,
                        const NeighborAllgatherOptions& options = {});

}  // namespace bluefog::ops
