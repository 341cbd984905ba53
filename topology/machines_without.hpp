#pragma once

#include <span>

#include "bluefog_cpp/machine_layout.hpp"
#include "topology/mixing_matrix.hpp"
#include "topology/schedule.hpp"

/// @file
/// Averages between machines (`hierarchical_neighbor_allreduce`) after ranks are lost.
namespace bluefog::topology {

/// The weights between machines after these ranks, not machines, are lost: machine M gives W′(M, N)
/// to the mean over the ranks of N that are left, so that every rank gets what the W of all ranks
///
///     w_ij = W(M, N) / L_N     for i on M and j on N, L_N ranks on N,
///
/// gives it `without` the lost ones. The weights for sums instead of means are A(M, N) = W′(M, N) /
/// l_N, l_N the ranks left on N. They begin as A = W / L, with L from before the loss, and one rank
/// of machine D after the other, by rising rank, changes them to
///
///     A(M, N) ← A(M, N) + A(M, D) A(D, N) / (1 − A(D, D)).
///
/// Ranks are removed from the W of all ranks as `MixingMatrix::without` says, with its bits the
/// same on all ranks. Rows that sum to 1 go on to do so. The mean over the ranks that are left is
/// kept if machines were of one size and W is doubly stochastic; columns of W′ do not show it, since
/// machines may differ in size now. A machine of which no rank is left has its self weight 1 and no
/// edge; without part of other machines, this is W.without(those machines), up to rounding.
///
/// @param machines W, one row per machine of `layout`.
/// @param layout the machines before the loss.
/// @param ranks the lost ranks, distinct; none gives W itself.
/// @throws InvalidArgument if W has another number of machines than the layout, if a rank is
///   outside 0 … layout.size() − 1 or there twice, if none is left, and as `MixingMatrix::without`.
/// Cost: O(entries of W), and p · q for each lost rank whose machine hears p and is heard by q.
[[nodiscard]] MixingMatrix machines_without(const MixingMatrix& machines,
                                            const MachineLayout& layout,
                                            std::span<const int> ranks);

/// The same for each step of a schedule over machines, formed as by `Schedule::without`.
[[nodiscard]] Schedule machines_without(const Schedule& machines, const MachineLayout& layout,
                                        std::span<const int> ranks);

}  // namespace bluefog::topology
