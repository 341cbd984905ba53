#pragma once

#include <cstdint>

#include "topology/schedule.hpp"

/// @file
/// Schedules in which a rank sends to at most one other in each step and hears at most one, with
/// weight 1/2 for its own value and for the one that arrives. Every W(t) is doubly stochastic.
namespace bluefog::topology {

/// In step t rank i and rank i XOR 2^(t mod τ) average; n = 2^τ. The product of τ steps is J.
/// @throws InvalidArgument unless `size` is a power of two.
[[nodiscard]] Schedule one_peer_hypercube(int size);

/// In each step the ranks are paired at random; with an odd number one of them rests. The pairs of
/// a step follow from `seed` and the step alone, the same on every machine.
/// @param steps the period.
/// @throws InvalidArgument if `size` < 1 or `steps` < 1.
/// Source: randomized gossip, Boyd et al. 2006.
[[nodiscard]] Schedule random_matching(int size, std::uint64_t seed, std::int64_t steps = 65536);

/// Ranks on `machines` machines of `local_size` ranks each, rank = machine · local_size + local.
/// In step t local rank t mod local_size sends to the next machine's and hears the one before; the
/// others go round inside, leaving that one out. Answers to BlueFog's
/// `GetInnerOuterRingDynamicSendRecvRanks`.
/// @throws InvalidArgument if `machines` < 1 or `local_size` < 3.
[[nodiscard]] Schedule inner_outer_ring(int machines, int local_size);

/// The same with distances that are powers of two, outside among machines and inside among the
/// ranks that stay. Answers to BlueFog's `GetInnerOuterExpo2DynamicSendRecvRanks`.
/// @throws InvalidArgument if `machines` < 2 or `local_size` < 3.
[[nodiscard]] Schedule inner_outer_exponential(int machines, int local_size);

/// Even steps: full averages inside each machine. Odd step 2s + 1: every rank averages with its
/// like on the machine 2^(s mod τ) before, τ = ⌈log₂ machines⌉. The period's product is J when
/// `machines` is a power of two. (The even steps are not one to one.)
/// @throws InvalidArgument if `machines` < 1 or `local_size` < 1.
[[nodiscard]] Schedule alternating_exponential(int machines, int local_size);

/// A schedule over machines, not ranks: its size is the number of machines, size / local_size, and
/// in step t machine m sends to machine m + 2^(t mod τ), τ = ⌈log₂ machines⌉. It tells the machines
/// of a `hierarchical_neighbor_allreduce` which ones to hear. The product of τ steps is J when the
/// number of machines is a power of two. Answers to BlueFog's `GetExp2DynamicSendRecvMachineRanks`.
/// @param size ranks in all. @param local_size ranks per machine.
/// @throws InvalidArgument if `size` < 1, `local_size` < 1, or it does not divide `size`.
[[nodiscard]] Schedule machine_exponential(int size, int local_size);

}  // namespace bluefog::topology
