#pragma once

#include <memory>
#include <string>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/options.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::ops {

/// The choices of `hierarchical_neighbor_allreduce`.
struct HierarchicalOptions {
  std::string name{};                    ///< as `OpOptions::name`
  PlanCheck check = PlanCheck::Trusted;  ///< the same on all ranks
  BufferUse buffer = BufferUse::Values;  ///< as `OpOptions::buffer`
};

/// Average inside each machine, then the weighted average with neighbouring machines, in place:
///
///     y_m = (1 / |m|) Σ_{i ∈ m} x_i        x_i ← w_mm y_m + Σ_k w_mk · d_k(m) · y_k   for i ∈ m
///
/// with w and d from `machine_plan`, whose ranks are machines (`Context::machines`). Every rank of
/// a machine gets the same bits. Machines may hold different numbers of ranks. y_m is formed as by
/// `allreduce`, the average between machines as by `neighbor_allreduce`, with machines as ranks.
///
/// All ranks of a machine take part on the way between machines: each owns a shard, sums it inside
/// the machine, exchanges it with the owners of the same bytes on neighbouring machines, and hands
/// the result round inside.
/// @param buffer as for `neighbor_allreduce`; its contents are unspecified after an error.
/// @param machine_plan this machine's part, the same on all of its ranks. Copied.
/// Every rank calls it, in the same order as its other calls.
/// Cost per rank of a machine of L ranks with d machines to send to, n bytes: 2 (L−1)/L · n bytes
/// inside the machine, d · n / L between machines.
/// @throws InvalidArgument for an unsupported dtype, a null or negative buffer, a plan of another
///   machine or number of machines. `Work::wait` throws MismatchError, PeerFailure, TimeoutError.
/// Source: BlueFog's `hierarchical_neighbor_allreduce`; the shards are this library's.
[[nodiscard]] Work hierarchical_neighbor_allreduce_nonblocking(
    Context& context, BufferView buffer, const std::shared_ptr<const NeighborPlan>& machine_plan,
    const HierarchicalOptions& options = {});

/// The form out of place: `output` gets the result, `input` is left as it is. The two have the same
/// count and dtype and do not overlap. `output` holds y_m on the way.
[[nodiscard]] Work hierarchical_neighbor_allreduce_nonblocking(
    Context& context, ConstBufferView input, BufferView output,
    const std::shared_ptr<const NeighborPlan>& machine_plan,
    const HierarchicalOptions& options = {});

/// @name Blocking forms
/// @{

/// They wait for `hierarchical_neighbor_allreduce_nonblocking`, with its errors: return when the
/// result is in memory.
void hierarchical_neighbor_allreduce(Context& context, BufferView buffer,
                                     const std::shared_ptr<const NeighborPlan>& machine_plan,
                                     const HierarchicalOptions& options = {});
void hierarchical_neighbor_allreduce(Context& context, ConstBufferView input, BufferView output,
                                     const std::shared_ptr<const NeighborPlan>& machine_plan,
                                     const HierarchicalOptions& options = {});
/// @}

}  // namespace bluefog::ops
